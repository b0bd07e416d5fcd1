"""JSON Schemas of spans."""

from typing import get_args

from loom_worker.core.values.spans import SpanEvent, SpanKind, SpanStatus, TraceSpan
from web.schemas import FREE, NUMBER, TEXT, TIME, answer, array, described, members, or_null

_EVENT = answer(members(SpanEvent, "name time attributes", time=TIME, attributes=FREE), description="A moment of it.")
TRACE_SPAN = answer(
    members(
        TraceSpan,
        "trace_id span_id parent_id name start_time end_time duration_ms attributes events status status_message",
        parent_id=described(or_null(TEXT), "Null of the root; a span of the client, where it sent a `traceparent`."),
        start_time=TIME,
        end_time=described(or_null(TIME), "Null while it goes on."),
        duration_ms=or_null(NUMBER),
        attributes=described(FREE, "Named as docs/tracing.md says."),
        events=array(_EVENT),
        status={"type": "string", "enum": list(get_args(SpanStatus))},
        status_message=described(TEXT, "Why it is an error."),
    )
    | {"kind": {"type": "string", "enum": list(get_args(SpanKind))}},
    description="One part of a turn, from its beginning to its end.",
)
