from itertools import chain

import pytest
from sqlalchemy import insert, select

from loom_worker.core.errors import NotFound
from loom_worker.core.values.spans import TraceSpan
from loom_worker.core.values.traces import TurnTrace
from loom_worker.store.cancel import cancel
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.tables import spans, trace_outbox
from loom_worker.store.trace_outbox import NO_TURN, TraceEntry, TraceOutbox, enqueue_trace
from tests.support.at_once import at_once
from tests.unit.store.made import NOW_MS, WORKSPACE, purged, running, submitted

HOLD_MS = 60_000
LATER = TraceSpan("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", None, "webhook.deliver", 5, 9)


def waiting_turn(database: Database, session: str = "s1") -> str:
    """A turn that is to be exported."""
    turn = submitted(database, session)
    with database.write(lock=WHOLE) as tx:
        enqueue_trace(tx, turn.id, now_ms=NOW_MS)
    return turn.id


def waiting_span(database: Database, turn_id: str, span: TraceSpan = LATER) -> int:
    """A later span of it that is to be exported; its number."""
    with database.write(lock=WHOLE) as tx:
        n: int = tx.execute(
            insert(spans).returning(spans.c.n), {"turn_id": turn_id, "added_ms": NOW_MS, "body": span.as_row()}
        ).scalar_one()
        enqueue_trace(tx, turn_id, span_n=n, now_ms=NOW_MS)
    return n


def cancelled(database: Database, turn_id: str, *, is_exported: bool) -> None:
    cancel(
        database,
        (WORKSPACE, turn_id),
        "interrupt",
        now_ms=NOW_MS,
        deliver=lambda _: None,
        is_exported=is_exported,
    )


@pytest.fixture
def box(database: Database) -> TraceOutbox:
    return TraceOutbox(database)


def test_entries_are_taken_in_their_order_and_held(database: Database, box: TraceOutbox) -> None:
    first, second = waiting_turn(database), waiting_turn(database)
    waiting_span(database, first)
    taken = box.take(most=2, now_ms=NOW_MS, hold_ms=HOLD_MS)
    assert taken == (TraceEntry(1, first), TraceEntry(2, second))
    assert box.take(most=2, now_ms=NOW_MS, hold_ms=HOLD_MS) == (TraceEntry(3, first, LATER),)
    assert box.take(most=2, now_ms=NOW_MS + HOLD_MS - 1, hold_ms=HOLD_MS) == ()
    assert box.waiting() == 3


def test_a_turn_that_no_worker_took_waits_unless_its_client_records_no_trace(
    database: Database, box: TraceOutbox
) -> None:
    told, untold = submitted(database), submitted(database, trace=TurnTrace(is_unsampled=True))
    for turn in (told, untold):
        cancelled(database, turn.id, is_exported=True)
    with pytest.raises(NotFound):
        cancelled(database, "turn_gone", is_exported=True)
    assert box.take(most=9, now_ms=NOW_MS, hold_ms=HOLD_MS) == (TraceEntry(1, told.id),)


def test_of_a_turn_that_no_worker_took_nothing_waits_where_nothing_is_exported(
    database: Database, box: TraceOutbox
) -> None:
    cancelled(database, submitted(database).id, is_exported=False)
    assert box.waiting() == 0


def test_a_turn_that_is_cancelled_while_it_runs_does_not_wait_yet(database: Database, box: TraceOutbox) -> None:
    claim = running(database)
    cancelled(database, claim.turn.id, is_exported=True)
    assert box.waiting() == 0


def test_what_a_dead_process_held_is_taken_again(database: Database, box: TraceOutbox) -> None:
    turn_id = waiting_turn(database)
    box.take(most=9, now_ms=NOW_MS, hold_ms=HOLD_MS)
    assert box.take(most=9, now_ms=NOW_MS + HOLD_MS, hold_ms=HOLD_MS) == (TraceEntry(1, turn_id),)


def test_a_clock_that_is_ahead_hides_nothing_for_long(database: Database, box: TraceOutbox) -> None:
    waiting_turn(database)
    ahead_ms = NOW_MS + 3_600_000
    box.take(most=9, now_ms=ahead_ms, hold_ms=HOLD_MS)
    assert len(box.take(most=9, now_ms=NOW_MS, hold_ms=HOLD_MS)) == 1
    turn = submitted(database, "ahead")
    with database.write(lock=WHOLE) as tx:
        enqueue_trace(tx, turn.id, now_ms=ahead_ms)
    assert box.is_late(added_before_ms=NOW_MS - 15_000, now_ms=NOW_MS)


def test_what_takes_long_is_held_for_longer(database: Database, box: TraceOutbox) -> None:
    waiting_turn(database)
    (taken,) = box.take(most=9, now_ms=NOW_MS, hold_ms=HOLD_MS)
    box.hold([taken.n], until_ms=NOW_MS + 2 * HOLD_MS)
    assert box.take(most=9, now_ms=NOW_MS + 2 * HOLD_MS - 1, hold_ms=HOLD_MS) == ()


def test_what_is_released_is_taken_at_once_and_what_is_removed_never(database: Database, box: TraceOutbox) -> None:
    ids = [waiting_turn(database) for _ in range(3)]
    taken = box.take(most=9, now_ms=NOW_MS, hold_ms=HOLD_MS)
    box.release([taken[1].n])
    box.remove([taken[0].n])
    assert [entry.turn_id for entry in box.take(most=9, now_ms=NOW_MS, hold_ms=HOLD_MS)] == [ids[1]]
    assert box.waiting() == 2
    box.remove([])
    box.release([])


def test_of_many_threads_each_entry_has_one(database: Database, box: TraceOutbox) -> None:
    for _ in range(20):
        waiting_turn(database)

    def run(_number: int) -> list[int]:
        taken: list[int] = []
        while entries := TraceOutbox(database).take(most=3, now_ms=NOW_MS, hold_ms=HOLD_MS):
            taken.extend(entry.n for entry in entries)
        return taken

    assert sorted(chain.from_iterable(at_once(run, range(8)))) == list(range(1, 21))


def test_nothing_is_noted_if_the_transaction_fails(database: Database, box: TraceOutbox) -> None:
    turn = submitted(database)

    def fail() -> None:
        with database.write(lock=WHOLE) as tx:
            enqueue_trace(tx, turn.id, now_ms=NOW_MS)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert box.waiting() == 0


def test_of_a_turn_that_is_deleted_meanwhile_nothing_is_left_to_send(database: Database, box: TraceOutbox) -> None:
    turn_id = waiting_turn(database)
    waiting_span(database, turn_id)
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("DELETE FROM turns")
    assert purged(database) == 0
    assert box.take(most=9, now_ms=NOW_MS, hold_ms=HOLD_MS) == (TraceEntry(1, turn_id), TraceEntry(2, NO_TURN))


def test_the_number_of_a_span_that_is_gone_may_be_that_of_another_turns(database: Database, box: TraceOutbox) -> None:
    waiting_span(database, waiting_turn(database))
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("DELETE FROM spans")
    other = waiting_turn(database, "s2")
    waiting_span(database, other)
    later = box.take(most=9, now_ms=NOW_MS, hold_ms=HOLD_MS)
    assert [(entry.turn_id, entry.later) for entry in later][1::2] == [(NO_TURN, None), (other, LATER)]


def test_an_entry_is_late_unless_somebody_holds_it(database: Database, box: TraceOutbox) -> None:
    assert not box.is_late(added_before_ms=NOW_MS, now_ms=NOW_MS)
    waiting_turn(database)
    assert not box.is_late(added_before_ms=NOW_MS - 1, now_ms=NOW_MS)
    assert box.is_late(added_before_ms=NOW_MS, now_ms=NOW_MS)
    box.take(most=1, now_ms=NOW_MS, hold_ms=HOLD_MS)
    assert not box.is_late(added_before_ms=NOW_MS, now_ms=NOW_MS)
    assert box.is_late(added_before_ms=NOW_MS, now_ms=NOW_MS + HOLD_MS)


def test_beyond_the_bound_the_oldest_are_dropped_and_named(database: Database, box: TraceOutbox) -> None:
    ids = [waiting_turn(database) for _ in range(4)]
    waiting_span(database, ids[0])
    assert box.trim(to=5) == ()
    assert box.trim(to=1, limit=2) == (TraceEntry(1, ids[0]), TraceEntry(2, ids[1]))
    assert box.trim(to=1, limit=9) == (TraceEntry(3, ids[2]), TraceEntry(4, ids[3]))
    assert box.trim(to=1) == ()
    assert box.trim(to=0) == (TraceEntry(5, ids[0], LATER),)
    assert box.trim(to=0) == ()


def test_gaps_do_not_count(database: Database, box: TraceOutbox) -> None:
    for _ in range(5):
        waiting_turn(database)
    box.remove([2, 3, 4])
    assert box.trim(to=2) == ()
    assert box.waiting() == 2


def test_a_row_is_small(database: Database) -> None:
    """The bound of the table counts rows, since no text is in them but an id."""
    turn_id = waiting_turn(database)
    with database.read() as tx:
        row = tx.execute(select(trace_outbox)).one()
    assert row == (1, turn_id, None, NOW_MS, 0)
    assert len(turn_id) <= 40
