"""Spans beside those of a journal: attempts at a webhook, the compression after a turn, a workflow's run. Pure."""

from dataclasses import replace

from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import Change, Summary
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.runs import Run
from loom_worker.core.values.spans import LaterSpans, SpanEvent, SpanStatus, TraceSpan, traceparent_of
from loom_worker.core.values.traces import Interval, TracedTurn
from loom_worker.trace import names
from loom_worker.trace.call_spans import SpanFrame, asked_model, going_on

_RUN_STATUS: dict[str, SpanStatus] = {"completed": "OK", "failed": "Error"}


def attempt_part(delivery: Delivery, began_us: int) -> tuple[str, ...]:
    """What the id of the span of an attempt at a delivery is made of; no two attempts have the same."""
    return ("webhook", delivery.id, str(began_us))


def traceparent(delivery: Delivery, began_us: int) -> str | None:
    """The ``traceparent`` that an attempt sends to the receiver; None: the turn has no trace."""
    return traceparent_of(delivery.trace_id, delivery.turn_id, *attempt_part(delivery, began_us))


def of_attempt(tried: Delivery, at: Interval, *, error: str | None) -> LaterSpans | None:
    """What an attempt at a delivery leaves in the turn's trace.

    Args:
        tried: as it stands after the attempt.
        error: why it does not count as delivered; None if it does.
    """
    if tried.trace_id is None:
        return None
    attributes: Json = {
        "http.request.method": "POST",
        "http.response.status_code": tried.last_status,
        "loom.delivery.id": tried.id,
        "loom.delivery.attempt": tried.attempts,
        "loom.delivery.status": tried.status,
        names.ERROR_TYPE: None if error is None else str(tried.last_status or "no_response"),
    }
    frame = SpanFrame(tried.turn_id, tried.trace_id)
    made = frame.span(attempt_part(tried, at.began_us), names.WEBHOOK_DELIVER, at, attributes, error=error)
    return LaterSpans(tried.turn_id, (replace(made, kind="client"),))


def of_compression(turn: TracedTurn, change: Change, summary: Summary, at: Interval) -> LaterSpans:
    """What a step of compression leaves in the trace of the turn with which it became due."""
    frame, part = SpanFrame(turn.turn_id, turn.trace_id), ("memory", str(change.version), str(at.began_us))
    attributes: Json = {
        "loom.memory.kind": change.kind,
        "loom.memory.level": change.level,
        "loom.memory.messages": change.messages,
        "loom.memory.from_tokens": change.from_tokens,
        "loom.memory.to_tokens": change.to_tokens,
        "loom.memory.by": change.by,
    }
    made = frame.span(part, names.MEMORY_COMPRESS, at, attributes)
    if change.kind != "summarized":
        made = replace(made, events=(SpanEvent(names.L2_COMPRESSION_TRIGGERED, at.began_us, made.attributes),))
    asked = (asked_model(frame, part, at, summary.asked, summary.usage),) if summary.usage.llm_calls else ()
    return LaterSpans(turn.turn_id, (made, *asked))


def span_of_run(run: Run) -> TraceSpan | None:
    """A workflow's run, from its acceptance to its end, above the spans of its turns; None if it has no trace."""
    if run.traceparent is None:
        return None
    _, trace_id, client_span, *_ = run.traceparent.split("-")
    attributes: Json = {
        "loom.workflow.name": run.workflow,
        "loom.workflow.type": run.pattern_type,
        "loom.run.id": run.id,
        "loom.run.status": run.status,
        "loom.run.stages": len(run.stages),
        **names.usage(run.usage),
        "loom.run.reason": run.reason,
    }
    # A retry that has nothing left to do ends as it is accepted, by a clock that was read before.
    at = Interval(run.trace.accepted_us or run.created_ms * 1000, (run.completed_ms or 0) * 1000)
    made = replace(
        SpanFrame(run.id, trace_id).span((), names.WORKFLOW_RUN, at, attributes),
        parent_id=client_span if run.trace.has_client_span else None,
        status=_RUN_STATUS.get(run.status, "Unset"),
        status_message=str((run.error or {}).get("message", "")) if run.status == "failed" else "",
    )
    return made if run.completed_ms is not None else going_on(made)
