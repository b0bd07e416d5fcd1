"""Spans as OTLP has them, in protobuf, by OpenTelemetry's own encoder. Only who exports so loads it."""

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from loom_worker import __version__
from loom_worker.core.values.json import Json
from loom_worker.core.values.spans import SpanEvent, TraceSpan
from loom_worker.trace import otlp
from loom_worker.trace.names import SCHEMA_URL

_STATUSES = {"Unset": StatusCode.UNSET, "OK": StatusCode.OK, "Error": StatusCode.ERROR}
_SCOPE = InstrumentationScope(otlp.SCOPE, __version__, SCHEMA_URL)


def request_body(spans: Sequence[TraceSpan], resource: Json) -> bytes:
    """An ExportTraceServiceRequest.

    Args:
        resource: what made them: attributes such as service.name.
    """
    made_by = Resource(resource)
    encoded: bytes = encode_spans([_readable(span, made_by) for span in spans]).SerializeToString()
    return encoded


def rejected_spans(body: bytes) -> int:
    """How many spans an ExportTraceServiceResponse says were not taken; 0 if it is none."""
    try:
        return int(ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans)
    except DecodeError:
        return 0


def _readable(span: TraceSpan, resource: Resource) -> ReadableSpan:
    end_us = span.start_us if span.end_us is None else span.end_us
    return ReadableSpan(
        span.name,
        _context(span.trace_id, span.span_id),
        _context(span.trace_id, span.parent_id) if span.parent_id else None,
        resource,
        _attributes(span.attributes),
        [_event(event) for event in span.events],
        kind=SpanKind[span.kind.upper()],
        status=Status(_STATUSES[span.status], span.status_message if span.status == "Error" else None),
        start_time=span.start_us * 1000,
        end_time=end_us * 1000,
        instrumentation_scope=_SCOPE,
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _event(event: SpanEvent) -> Event:
    return Event(event.name, _attributes(event.attributes), event.at_us * 1000)


def _attributes(attributes: Json) -> dict[str, Any]:
    """Values as the encoder takes them, from those of the JSON, so that both say the same."""
    return {name: _plain(otlp.any_value(value)) for name, value in attributes.items() if value is not None}


def _plain(value: Json) -> Any:
    match value:
        case {"stringValue": str(text)}:
            return text.encode("utf-8", "replace").decode()
        case {"intValue": str(digits)}:
            return int(digits)
        case {"doubleValue": number}:
            return float(number)
        case {"arrayValue": {"values": list(values)}}:
            return [_plain(each) for each in values]
        case _:
            return value["boolValue"]
