"""I17: the trace of every turn arrives at the collector, in requests as they were promised."""

from collections.abc import Iterator, Sequence

from loom_worker.core.values.spans import span_id_of
from tests.chaos.facts import Facts, TurnFact
from tests.chaos.records import Evidence
from tests.chaos.run_facts import RunFact
from tests.chaos.verdict import Violation

MOST_SPANS, MOST_BYTES = 100, 1_000_000
MOST_MESSAGES = 20
"""A few from every process that sends; without a bound there would be one for a turn, or for a second."""
TRIED_MS = 90_000
"""How long after a turn's end its batch may be tried at a time at which the collector does not answer."""


def check_exported(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I17: the span of every turn that a worker ended has arrived, whatever was killed, and that of every run.

    Outages of the collector are shorter than the time over which a batch is tried, so that one of them loses nothing;
    if there were several, turns that ended near them are left out, for a batch can meet two.
    """
    if evidence.exports is None:
        return
    arrived = {span_id for export in evidence.exports for _, span_id, _ in export.spans}
    outages = [each for each in evidence.injections if each.kind == "collector"]
    everything: Sequence[TurnFact | RunFact] = (*facts.turns, *facts.runs)
    for each in everything:
        was_run = isinstance(each, RunFact) or each.row["fence"]
        if each.row["completed_ms"] is None or not was_run or not each.row["traceparent"]:
            continue
        ended_ms = each.row["completed_ms"]
        near = [outage for outage in outages if ended_ms - 1000 < outage.until_s * 1000 < ended_ms + TRIED_MS]
        if span_id_of(each.id) not in arrived and (len(outages) < 2 or not near):
            yield _i17(f"{each.name}: its trace has not arrived")


def check_requests(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I17: no request is larger than was promised, and no messages piled up while the collector did not answer."""
    for export in evidence.exports or ():
        if len(export.spans) > MOST_SPANS or export.size_bytes > MOST_BYTES:
            yield _i17(f"a request had {len(export.spans)} spans and {export.size_bytes} bytes")
    if evidence.most_trace_messages > MOST_MESSAGES:
        yield _i17(f"{evidence.most_trace_messages} messages waited in the queue trace")


def _i17(text: str) -> Violation:
    return Violation("I17", text)
