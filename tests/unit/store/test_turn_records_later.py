"""Spans that are stored as such, each with what it tells of."""

from dataclasses import replace

import pytest

from loom_worker.core.values.memory import MemoryState
from loom_worker.core.values.spans import LaterSpans, SpanEvent, TraceSpan
from loom_worker.core.values.traces import TracedTurn
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Journal
from loom_worker.store.memory import Memories, NewMemory
from loom_worker.store.outbox import Outbox
from loom_worker.store.sessions import Sessions
from loom_worker.store.turn_records import TurnRecords, add_spans, last_ended
from tests.unit.store.made import NOW_MS, WORKSPACE, counts, delivery, final, purged, running, submitted

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
SPAN = TraceSpan(TRACE, "1" * 16, "2" * 16, "memory.compress", 1, 2, {"a": 1}, (SpanEvent("b", 1, {"c": 2}),), "OK")


def told(turn_id: str) -> LaterSpans:
    return LaterSpans(turn_id, (SPAN, replace(SPAN, span_id="3" * 16)))


def test_spans_come_back_as_they_were(database: Database) -> None:
    turn = submitted(database)
    with database.write(lock=WHOLE) as tx:
        add_spans(tx, told(turn.id), now_ms=NOW_MS)
    assert TurnRecords(database).get(WORKSPACE, turn.id).later == told(turn.id).spans


@pytest.mark.parametrize("spans", [(), (SPAN,)], ids=["none", "of a turn that is gone"])
def test_nothing_is_stored_of_no_spans_and_of_turns_that_are_gone(
    database: Database, spans: tuple[TraceSpan, ...]
) -> None:
    with database.write(lock=WHOLE) as tx:
        add_spans(tx, LaterSpans("turn_gone", spans), now_ms=NOW_MS)
    assert counts(database)["spans"] == 0


def test_an_attempt_at_a_webhook_is_stored_with_the_delivery(database: Database) -> None:
    claim = running(database)
    made = delivery(0, claim, trace_id=TRACE)
    Journal(database).finish(claim, final(delivery=made))
    outbox = Outbox(database)
    taken = outbox.take(made.id, now_ms=NOW_MS, hold_ms=1000)
    assert taken is not None
    assert taken.trace_id == TRACE
    outbox.save(replace(taken, status="delivered", attempts=1), told(claim.turn.id))
    assert counts(database)["spans"] == 2


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_compression_is_told_also_if_it_came_too_late(database: Database, is_applied: bool) -> None:
    claim = running(database)
    Journal(database).finish(claim, final(memory_due=True))
    memories, before = Memories(database), MemoryState()
    assert memories.claim(claim.turn.lane, worker="w1", alive=frozenset(), now_ms=NOW_MS)
    if not is_applied:
        assert memories.apply(claim.turn.lane, before, NewMemory(before), now_ms=NOW_MS)
    new = NewMemory(replace(before, first_n=3), told=told(claim.turn.id))
    assert memories.apply(claim.turn.lane, before, new, now_ms=NOW_MS) is is_applied
    assert counts(database)["spans"] == 2


def test_a_compression_is_that_of_the_last_turn_that_had_ended_when_it_became_due(database: Database) -> None:
    ids = []
    for at_ms in (NOW_MS, NOW_MS + 100):
        claim = running(database, traceparent=TRACEPARENT)
        progress = {**final().progress, "completed_ms": at_ms}
        Journal(database).finish(claim, final(progress=progress))
        ids.append(claim.turn.id)
    lane = running(database, traceparent=TRACEPARENT).turn.lane
    with database.read() as tx:
        found = [last_ended(tx, lane, until_ms=NOW_MS + after_ms) for after_ms in (-1, 0, 99, 100, 10_000)]
    assert found == [None, *(TracedTurn(ids[n], TRACE) for n in (0, 0, 1, 1))]


def test_a_turn_without_a_trace_is_told_of_nothing(database: Database) -> None:
    claim = running(database)
    Journal(database).finish(claim, final())
    with database.read() as tx:
        assert last_ended(tx, claim.turn.lane, until_ms=NOW_MS + 1000) is None
        assert last_ended(tx, "no such lane", until_ms=NOW_MS + 1000) is None


def test_spans_go_with_their_session(database: Database) -> None:
    claim = running(database)
    Journal(database).finish(claim, final())
    with database.write(lock=WHOLE) as tx:
        add_spans(tx, told(claim.turn.id), now_ms=NOW_MS)
    Sessions(database).delete(WORKSPACE, "s1")
    purged(database)
    assert counts(database)["spans"] == 0
