"""I16: the trace of a turn that has ended tells all of it, whoever died meanwhile."""

from collections import Counter
from collections.abc import Iterator, Sequence

from loom_worker.core.values.spans import TraceSpan
from loom_worker.core.values.traces import RUNS, TurnTrace
from loom_worker.store import rows
from loom_worker.store.turn_records import TurnRecord
from loom_worker.trace.turn_spans import spans_of
from tests.chaos.facts import Facts, TurnFact
from tests.chaos.records import Evidence
from tests.chaos.verdict import Violation

RUN = "workflow.run"
"""The span under which all turns of a run lie; it is stored with the last of them."""


def check_traces(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I16: a trace is one tree without an open end, in which nothing is missing that the system did and stored.

    Of each turn that has ended: its spans have one root, parents that are among them, ids of their own, and ends.
    There is one for each time that a worker took the turn, however that ended; for each reply that the journal has;
    for each call that a tool has had an effect for, or that has a result; for each verdict that a judge gave; and one
    that went well for each webhook that was delivered.
    """
    effects = {effect.nonce for effect in evidence.effects}
    for turn in facts.turns:
        if turn.turn.is_finished:
            record = _record(turn)
            spans = spans_of(record)
            flaws = (*_shape(spans), *_stored(record, spans), *_runs(turn, spans), *_parts(turn, spans, effects))
            yield from (Violation("I16", f"{turn.name}: its trace {flaw}") for flaw in flaws)


def _record(turn: TurnFact) -> TurnRecord:
    parts = (turn.row["traceparent"] or "").split("-")
    return TurnRecord(
        turn=turn.turn,
        trace_id=parts[1] if parts[1:] else "",
        parent_id=parts[2] if parts[2:] else None,
        claimed_us=turn.row["claimed_us"],
        trace=TurnTrace.of(turn.row["trace"]),
        steps=tuple(map(rows.step, turn.steps)),
        verdicts=tuple(map(rows.verdict, turn.verdicts)),
        later=tuple(TraceSpan.of_row(row["body"]) for row in turn.later),
    )


def _shape(spans: Sequence[TraceSpan]) -> Iterator[str]:
    ids = Counter(span.span_id for span in spans)
    roots = [span.name for span in spans if span.parent_id not in ids]
    if len(roots) != 1:
        yield f"has the roots {roots}"
    if twice := {span.name for span in spans if ids[span.span_id] > 1}:
        yield f"has ids twice, of {sorted(twice)}"
    if endless := {span.name for span in spans if span.end_us is None}:
        yield f"has no end of {sorted(endless)}"
    if early := {span.name for span in spans if span.end_us is not None and span.end_us < span.start_us}:
        yield f"has an end before the beginning of {sorted(early)}"


def _stored(record: TurnRecord, spans: Sequence[TraceSpan]) -> Iterator[str]:
    """Spans are shown below the turn where their parent is missing; here none may be, but above a run of a workflow."""
    ids = {span.span_id for span in spans}
    if lost := {span.name for span in record.later if span.parent_id not in ids and span.name != RUN}:
        yield f"has no parent of {sorted(lost)}"


def _runs(turn: TurnFact, spans: Sequence[TraceSpan]) -> Iterator[str]:
    runs = [span for span in spans if span.name == "turn.run"]
    if len(runs) != min(RUNS, turn.row["fence"]):
        yield f"has {len(runs)} runs, and workers took it {turn.row['fence']} times"
    dead = sum(span.status == "Error" for span in runs)
    if dead < turn.row["deaths"] and len(runs) < RUNS:
        yield f"has {dead} runs whose workers died, and {turn.row['deaths']} did"


def _parts(turn: TurnFact, spans: Sequence[TraceSpan], effects: set[str]) -> Iterator[str]:
    runs = {span.span_id for span in spans if span.name in ("turn.run", "agent.chat")}
    asked = [span for span in spans if span.name == "llm.completion" and span.parent_id in runs]
    replies = sum("loom.tokens" in span.attributes for span in asked)
    if replies != len(turn.replies):
        yield f"has {replies} replies, the journal {len(turn.replies)}"
    ran = {call.id for call in turn.calls if call.status == "completed" or call.arguments.get("nonce") in effects}
    told = {span.attributes["gen_ai.tool.call.id"] for span in spans if span.name == "tool.execute"}
    if ran - told:
        yield f"does not tell of the calls {sorted(ran - told)}"
    scored = sum(row["status"] == "scored" for row in turn.verdicts)
    judged = sum(span.name == "judge.score" and span.status == "OK" for span in spans)
    if judged != scored:
        yield f"has {judged} verdicts, and judges gave {scored}"
    delivered = {row["id"] for row in turn.deliveries if row["status"] == "delivered" and row["trace_id"]}
    sent = {span.attributes["loom.delivery.id"] for span in spans if _is_delivered(span)}
    if delivered - sent:
        yield f"does not tell how {sorted(delivered - sent)} were delivered"


def _is_delivered(span: TraceSpan) -> bool:
    return span.name == "webhook.deliver" and span.status == "OK"
