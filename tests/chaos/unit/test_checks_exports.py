"""I17: each test breaks the traces of a run that kept every promise."""

import pytest

from loom_worker.core.values.spans import span_id_of
from tests.chaos.checker import check
from tests.chaos.checks_exports import MOST_BYTES, MOST_MESSAGES, MOST_SPANS
from tests.chaos.collector import Export
from tests.chaos.facts import read_facts
from tests.chaos.records import Evidence, Injection
from tests.chaos.unit.made import Run, assert_found
from tests.chaos.verdict import Violation

TRACEPARENT = "00-{:032x}-b7ad6b7169203331-01"


@pytest.fixture
def exports(run: Run) -> tuple[Export, ...]:
    """A request for each turn, with its root."""
    found = []
    for n, turn in enumerate(read_facts(run.settings.home).turns, start=1):
        run.sql("UPDATE turns SET traceparent = ?, fence = 1 WHERE id = ?", TRACEPARENT.format(n), turn.id)
        found.append(Export(1.0, ((f"{n:032x}", span_id_of(turn.id), "agent.chat"),), 900))
    return tuple(found)


def broken(evidence: Evidence) -> list[Violation]:
    """What is wrong with the traces; other checks know nothing of these."""
    return [found for found in check(evidence) if found.invariant == "I17"]


def test_a_run_whose_traces_have_all_arrived_has_no_violation(run: Run, exports: tuple[Export, ...]) -> None:
    assert broken(run.evidence(exports=exports)) == []


def test_a_trace_that_has_not_arrived_is_found(run: Run, exports: tuple[Export, ...]) -> None:
    assert_found(run.evidence(exports=exports[1:]), "I17", "its trace has not arrived")


def test_one_outage_excuses_nothing_and_two_what_ended_near_them(run: Run, exports: tuple[Export, ...]) -> None:
    ended_s = max(turn.row["completed_ms"] for turn in read_facts(run.settings.home).turns) / 1000
    outage = Injection("collector", "down", ended_s, ended_s + 4)
    assert_found(run.evidence(exports=(), injections=(outage,)), "I17", "its trace has not arrived")
    assert broken(run.evidence(exports=(), injections=(outage, outage))) == []
    late = Injection("collector", "down", ended_s + 900, ended_s + 904)
    assert_found(run.evidence(exports=(), injections=(late, late)), "I17", "its trace has not arrived")


@pytest.mark.parametrize(("spans", "size_bytes"), [(MOST_SPANS + 1, 9), (1, MOST_BYTES + 1)])
def test_a_request_that_is_too_large_is_found(
    run: Run, exports: tuple[Export, ...], spans: int, size_bytes: int
) -> None:
    large = Export(1.0, (("a", "b", "x"),) * spans, size_bytes)
    assert_found(run.evidence(exports=(*exports, large)), "I17", f"a request had {spans} spans")


def test_messages_that_pile_up_are_found(run: Run, exports: tuple[Export, ...]) -> None:
    piled = run.evidence(exports=exports, most_trace_messages=MOST_MESSAGES + 1)
    assert_found(piled, "I17", "messages waited in the queue trace")
