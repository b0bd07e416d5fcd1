"""All spans of a turn, made from what its journal tells: pure, but for ``TurnTraces``, which reads the journal.

No span is made while a turn runs: each step leaves its times in the journal, in the transaction that stores the step.
So a trace is complete whoever died meanwhile, is the same whenever it is made, and costs a running turn nothing. Ids
follow from what a span stands for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from loom_worker.core.values.json import Json
from loom_worker.core.values.spans import SpanStatus, TraceSpan
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.traces import CallTimes, Interval, WorkerRun
from loom_worker.core.values.turns import Turn
from loom_worker.store.database import Database
from loom_worker.store.turn_records import TurnRecord, TurnRecords
from loom_worker.trace import names
from loom_worker.trace.call_spans import SpanFrame, error_stored, going_on, of_judges, of_model, of_tools

ERROR_CHARS = 200


@dataclass(frozen=True, slots=True)
class TurnTraces:
    """Makes the spans of turns anew whenever they are asked for."""

    database: Database
    shows_content: bool = False
    """True: spans hold what users, models and tools wrote."""

    def of_turn(self, tenant: Tenant, turn_id: str) -> tuple[TraceSpan, ...]:
        """All spans of a tenant's turn, also of one that goes on; see spans_of.

        Raises:
            NotFound: the tenant has no such turn.
        """
        return spans_of(TurnRecords(self.database).get(tenant, turn_id), shows_content=self.shows_content)

    def spans(self, turn_ids: Sequence[str]) -> Mapping[str, tuple[TraceSpan, ...]]:
        """What the journals of ended turns tell, by turn; turns that are gone are missing.

        Spans that are stored as such are exported one by one.
        """
        found = TurnRecords(self.database).of(turn_ids).items()
        return {turn: spans_of(replace(record, later=()), shows_content=self.shows_content) for turn, record in found}


def spans_of(record: TurnRecord, *, shows_content: bool = False) -> tuple[TraceSpan, ...]:
    """Every span of a turn, each after its parent and those that began earlier.

    There is one root: the HTTP request, or ``agent.chat`` of a turn that did not come by HTTP; where the client sent a
    ``traceparent``, that span's parent is the client's. A turn that goes on has spans without an end.

    Args:
        shows_content: True: attributes hold what user, model and tools wrote, cut to some thousand characters.
    """
    frame = SpanFrame(record.turn.id, record.trace_id, shows_content)
    request = _request(frame, record)
    root = _chat(frame, record, parent_id=request.span_id if request else _client_span(record))
    rest = (
        *_waited(frame, record),
        *_runs(frame, record),
        *_steps(frame, record),
        *of_tools(frame, record.turn.calls, _replied_us(record)),
        *of_judges(frame, record.verdicts),
        *_end(frame, record),
        *record.later,
    )
    # A run of a workflow, of which the turn was the last stage, stands above it.
    above = tuple(span for span in rest if span.span_id == root.parent_id)
    below = [span for span in rest if span not in above]
    return (*above, *((request,) if request else ()), root, *_in_order(_adopted(below, root)))


def _adopted(spans: Sequence[TraceSpan], root: TraceSpan) -> Sequence[TraceSpan]:
    """None without a parent: of many spans that are stored as such only the latest are read."""
    known = {root.span_id, *(span.span_id for span in spans)}
    return [span if span.parent_id in known else replace(span, parent_id=root.span_id) for span in spans]


def _in_order(spans: Sequence[TraceSpan]) -> Sequence[TraceSpan]:
    """By their beginning; also where a clock stepped back, none before its parent."""
    known = {span.span_id: span for span in spans}

    def place(span: TraceSpan) -> tuple[int, int]:
        parent = known.get(span.parent_id or "")
        began_us, depth = (0, 0) if parent is None else place(parent)
        return max(began_us, span.start_us), depth + 1

    return sorted(spans, key=place)


def _client_span(record: TurnRecord) -> str | None:
    """The span of the client that the trace hangs on."""
    return record.parent_id if record.trace.has_client_span else None


def _request(frame: SpanFrame, record: TurnRecord) -> TraceSpan | None:
    """The HTTP request, until its turn was stored; the answer left right after. None: it did not come by HTTP."""
    trace, turn = record.trace, record.turn
    if trace.received_us is None or trace.accepted_us is None:
        return None
    attributes = {
        "http.request.method": "POST",
        "http.route": "/v1/turns/{turn_id}/retry" if turn.retry_of else "/v1/sessions/{session_id}/turns",
        "http.response.status_code": 202,
        "loom.request_id": turn.request_id,
    }
    at = Interval(trace.received_us, trace.accepted_us)
    made = frame.span(("http",), names.HTTP_REQUEST, at, attributes)
    span_id = made.span_id if trace.has_client_span else record.parent_id or made.span_id
    return replace(made, span_id=span_id, parent_id=_client_span(record), kind="server")


def _chat(frame: SpanFrame, record: TurnRecord, *, parent_id: str | None) -> TraceSpan:
    turn, trace = record.turn, record.trace
    ended_us = trace.stored.ended_us if trace.stored else (turn.completed_ms or 0) * 1000
    made = frame.span((), names.AGENT_CHAT, Interval(record.accepted_us, ended_us), _of_turn(frame, record))
    status, message = _status(turn)
    made = replace(made, parent_id=parent_id, status=status, status_message=message, kind="consumer")
    return made if turn.is_finished else going_on(made)


def _of_turn(frame: SpanFrame, record: TurnRecord) -> Json:
    turn, session = record.turn, record.trace.session or {}
    replies = [step.payload.get("times") for step in record.steps if step.kind == "reply"]
    asked = CallTimes.of(replies[-1] if replies else record.trace.failed_call)
    return {
        names.OPERATION: "invoke_agent",
        names.AGENT: turn.agent,
        names.AGENT_VERSION: turn.agent_version,
        names.CONVERSATION: turn.session_id,
        names.PROVIDER: names.provider(asked.provider) if asked else None,
        names.REQUEST_MODEL: asked.model if asked else None,
        names.MODEL: asked.model if asked else None,
        **names.usage(turn.usage),
        names.TURNS: session.get("turns"),
        names.TOKENS_TOTAL: session.get("tokens"),
        names.COST_TOTAL: session.get("cost_usd"),
        names.ERROR_TYPE: (turn.error or {}).get("type") or (turn.reason if turn.status == "failed" else None),
        "loom.workspace": turn.workspace,
        "loom.turn.id": turn.id,
        "loom.turn.seq": turn.seq,
        "loom.turn.status": turn.status,
        "loom.turn.reason": turn.reason,
        "loom.turn.attempt": turn.attempt,
        "loom.turn.run_ms": turn.run_ms,
        "loom.error_id": (turn.error or {}).get("error_id"),
        **frame.message(names.INPUT_MESSAGES, "user", turn.input),
        **frame.message(names.OUTPUT_MESSAGES, "assistant", turn.output_text),
    }


def _status(turn: Turn) -> tuple[SpanStatus, str]:
    if turn.status in ("failed", "incomplete"):
        message = str((turn.error or {}).get("message") or "")[:ERROR_CHARS]
        return "Error", ": ".join(filter(None, (turn.reason or turn.status, message)))
    return ("OK" if turn.status == "completed" else "Unset"), ""


def _waited(frame: SpanFrame, record: TurnRecord) -> Iterator[TraceSpan]:
    """In the queue, until a worker first took it."""
    turn, trace = record.turn, record.trace
    first_us = trace.runs[0].began_us if trace.runs else record.claimed_us
    ended_us = first_us or (turn.completed_ms or 0) * 1000
    made = frame.span(("wait",), names.LANE_WAIT, Interval(record.accepted_us, ended_us), {})
    yield made if ended_us else going_on(made)


def _runs(frame: SpanFrame, record: TurnRecord) -> Iterator[TraceSpan]:
    """Each worker's time with the turn; one that died is an error, and ends when its successor came."""
    for run in record.trace.runs:
        error = "the worker died" if run.end == "died" else None
        attributes = {"loom.worker": names.worker(run.worker), "loom.run.end": run.end, "loom.run.fence": run.fence}
        yield frame.span(
            ("run", str(run.fence)), names.TURN_RUN, Interval(run.began_us, run.ended_us), attributes, error=error
        )
    current = _current(record)
    if current is not None:
        attributes = {"loom.worker": names.worker(current.worker), "loom.run.fence": current.fence}
        at = Interval(current.began_us, current.began_us)
        yield going_on(frame.span(("run", str(current.fence)), names.TURN_RUN, at, attributes))


def _current(record: TurnRecord) -> WorkerRun | None:
    """The run that goes on."""
    turn = record.turn
    if turn.held_by is None or turn.is_finished or record.claimed_us is None:
        return None
    return WorkerRun(turn.fence, turn.held_by, record.claimed_us, record.claimed_us, "parked")


def _steps(frame: SpanFrame, record: TurnRecord) -> Iterator[TraceSpan]:
    current = _current(record)
    runs = frozenset((*(run.fence for run in record.trace.runs), *((current.fence,) if current else ())))
    for step in record.steps:
        times = step.payload.get("times") if step.kind == "matched" else None
        at = Interval.of(times["at"]) if times else None
        if times and at:
            patterns = [str(pattern["id"]) for pattern in record.turn.patterns if pattern.get("how") != "loaded"]
            attributes = {"loom.patterns": patterns or None, "loom.patterns.count": len(patterns)}
            parent = ("run", str(times["run"])) if times["run"] in runs else ()
            yield frame.span(("match",), names.PATTERN_MATCH, at, attributes, parent=parent)
    yield from of_model(frame, record.steps, record.trace.failed_call, runs)


def _replied_us(record: TurnRecord) -> dict[int, int]:
    """When each reply had come, by the number of its step."""
    found: dict[int, int] = {}
    for step in record.steps:
        times = CallTimes.of(step.payload.get("times")) if step.kind == "reply" else None
        if times is not None and times.tries:
            found[step.n] = times.tries[-1].at.ended_us
    return found


def _end(frame: SpanFrame, record: TurnRecord) -> Iterator[TraceSpan]:
    """What storing the turn's end took, and storing why it failed."""
    trace, turn = record.trace, record.turn
    error_id = (turn.error or {}).get("error_id")
    if trace.error_stored is not None and error_id is not None:
        yield error_stored(frame, trace.error_stored, str(error_id), None)
    if trace.stored is not None:
        parent = ("run", str(trace.runs[-1].fence)) if trace.runs else ()
        yield frame.span(("finish",), names.STORE_FINISH, trace.stored, {}, parent=parent)
