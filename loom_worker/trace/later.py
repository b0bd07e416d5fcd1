"""Spans of what follows a turn's end: attempts at its webhook, and the compression that it made necessary. Pure."""

from dataclasses import replace

from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import Change, Summary
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.spans import LaterSpans, SpanEvent, traceparent_of
from loom_worker.core.values.traces import Interval, TracedTurn
from loom_worker.trace import names
from loom_worker.trace.call_spans import SpanFrame, asked_model


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
