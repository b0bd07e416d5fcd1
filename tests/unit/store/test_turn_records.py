"""What the database has of a turn, for its trace."""

import pytest

from loom_worker.core.errors import NotFound
from loom_worker.core.values.spans import TraceSpan
from loom_worker.core.values.traces import TurnTrace, WorkerRun
from loom_worker.core.values.turns import Step
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.turn_records import LATER_SPANS, LaterSpans, TurnRecords, add_spans
from tests.unit.store.made import NOW_MS, WORKSPACE, call, claimed, final, running, submitted

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


@pytest.fixture
def records(database: Database) -> TurnRecords:
    return TurnRecords(database)


def span(n: int, turn_id: str) -> TraceSpan:
    return TraceSpan(TRACE, f"{n:016x}", None, "webhook.deliver", n, n + 1, {"turn": turn_id})


def test_a_turn_has_the_trace_of_its_request(database: Database, records: TurnRecords) -> None:
    turn = submitted(database, traceparent=f"00-{TRACE}-{PARENT}-01", trace=TurnTrace(5, has_client_span=True))
    record = records.get(WORKSPACE, turn.id)
    assert (record.trace_id, record.parent_id, record.claimed_us) == (TRACE, PARENT, None)
    assert (record.trace.received_us, record.trace.has_client_span) == (5, True)
    assert record.trace.accepted_us is not None


def test_a_turn_without_a_request_has_a_trace_of_its_own_which_stays_the_same(
    database: Database, records: TurnRecords
) -> None:
    one, two = (submitted(database, session).id for session in ("s1", "s2"))
    ids = [records.get(WORKSPACE, turn_id).trace_id for turn_id in (one, one, two)]
    assert [len(each) for each in ids] == [32] * 3
    assert (ids[0] == ids[1], ids[0] == ids[2]) == (True, False)
    assert records.get(WORKSPACE, one).parent_id is None


def test_steps_calls_and_runs_are_there(database: Database, records: TurnRecords) -> None:
    claim = running(database)
    traced = call(trace={"process": {"pid": 1, "at": [1, 2]}})
    Journal(database).save(claim, Entries([Step(0, "matched", {"context": ""})], [traced]), {"run_ms": 1})
    record = records.get(WORKSPACE, claim.turn.id)
    assert [step.kind for step in record.steps] == ["matched"]
    assert [each.trace for each in record.turn.calls] == [traced.trace]
    assert (record.claimed_us, record.trace.runs) == (claim.claimed_us, ())


def test_a_run_ends_with_its_turn_when_all_of_that_is_stored(database: Database, records: TurnRecords) -> None:
    claim = running(database)
    Journal(database).finish(claim, final(trace=claim.trace))
    trace = records.get(WORKSPACE, claim.turn.id).trace
    assert trace.stored is not None
    (ended,) = trace.runs
    assert ended == WorkerRun(claim.turn.fence, "w1", claim.claimed_us, trace.stored.ended_us, "ended")
    assert trace.accepted_us is not None
    assert trace.accepted_us <= ended.began_us <= trace.stored.began_us <= trace.stored.ended_us


def test_a_run_that_parked_and_one_that_was_released_are_told_apart(database: Database, records: TurnRecords) -> None:
    claim = running(database)
    Claims(database).park(claim, until_ms=NOW_MS, run_ms=1)
    again = claimed(database, claim.turn.lane)
    Claims(database).release(again, run_ms=1)
    runs = records.get(WORKSPACE, claim.turn.id).trace.runs
    assert [(run.fence, run.end) for run in runs] == [(claim.turn.fence, "parked"), (again.turn.fence, "released")]


def test_a_run_whose_worker_died_ends_when_its_successor_comes(database: Database, records: TurnRecords) -> None:
    first = running(database)
    second = claimed(database, first.turn.lane, "w2")
    record = records.get(WORKSPACE, first.turn.id)
    assert record.trace.runs == (WorkerRun(first.turn.fence, "w1", first.claimed_us, second.claimed_us, "died"),)
    assert record.claimed_us == second.claimed_us
    Journal(database).finish(second, final(trace=second.trace))
    assert [run.end for run in records.get(WORKSPACE, first.turn.id).trace.runs] == ["died", "ended"]


def test_later_spans_come_in_order_and_of_many_the_latest(database: Database, records: TurnRecords) -> None:
    turn = submitted(database)
    spans = [span(n, turn.id) for n in range(LATER_SPANS + 3)]
    with database.write(lock=WHOLE) as tx:
        add_spans(tx, LaterSpans(turn.id, tuple(spans)), now_ms=NOW_MS)
    assert list(records.get(WORKSPACE, turn.id).later) == spans[3:]


def test_several_turns_are_read_at_once_and_those_that_are_gone_are_missing(
    database: Database, records: TurnRecords
) -> None:
    one, two = (submitted(database, session).id for session in ("s1", "s2"))
    found = records.of([one, "turn_gone", two])
    assert {turn_id: record.turn.id for turn_id, record in found.items()} == {one: one, two: two}


def test_a_turn_of_another_workspace_is_not_there(database: Database, records: TurnRecords) -> None:
    turn = submitted(database)
    for tenant, turn_id in (("other", turn.id), (WORKSPACE, "turn_none")):
        with pytest.raises(NotFound):
            records.get(tenant, turn_id)
