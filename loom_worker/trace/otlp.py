"""Spans as OTLP/HTTP has them, in JSON: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding. Pure."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from loom_worker import __version__
from loom_worker.core.values.json import Json
from loom_worker.core.values.spans import SpanEvent, SpanKind, SpanStatus, TraceSpan
from loom_worker.trace.names import SCHEMA_URL

SCOPE = "loom"
KINDS: Mapping[SpanKind, int] = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
STATUSES: Mapping[SpanStatus, int] = {"Unset": 0, "OK": 1, "Error": 2}
INT64 = 1 << 63


def encoded_span(span: TraceSpan) -> bytes:
    """One span; it must have ended."""
    return _bytes(_span(span))


def request_body(spans: Sequence[bytes], resource: Json) -> bytes:
    """An ExportTraceServiceRequest.

    Args:
        spans: each as ``encoded_span`` gives it.
        resource: what made them: attributes such as service.name.
    """
    head = _bytes({"attributes": _attributes(resource)})
    scope = _bytes({"name": SCOPE, "version": __version__})
    parts = (b'{"resourceSpans":[{"resource":', head, b',"scopeSpans":[{"scope":', scope, b',"spans":[')
    return b"".join((*parts, b",".join(spans), b'],"schemaUrl":', _bytes(SCHEMA_URL), b"}]}]}"))


def _span(span: TraceSpan) -> Json:
    status = {"code": STATUSES[span.status], **({"message": span.status_message} if span.status_message else {})}
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        **({"parentSpanId": span.parent_id} if span.parent_id else {}),
        "name": span.name,
        "kind": KINDS[span.kind],
        "startTimeUnixNano": _nanos(span.start_us),
        "endTimeUnixNano": _nanos(span.start_us if span.end_us is None else span.end_us),
        "attributes": _attributes(span.attributes),
        **({"events": [_event(event) for event in span.events]} if span.events else {}),
        "status": status,
    }


def _event(event: SpanEvent) -> Json:
    return {
        "timeUnixNano": _nanos(event.at_us),
        "name": event.name,
        "attributes": _attributes(event.attributes),
    }


def _nanos(moment_us: int) -> str:
    return str(moment_us * 1000)  # 64 bits are text in JSON


def _attributes(attributes: Json) -> list[Json]:
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items() if value is not None]


def any_value(value: Any) -> Json:
    """The value of an attribute, as an object with one field, which names its type."""
    match value:
        case str():
            return {"stringValue": value}
        case bool():
            return {"boolValue": value}
        case int() if -INT64 <= value < INT64:
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value if math.isfinite(value) else _not_finite(value)}
        case list() | tuple():
            return {"arrayValue": {"values": [any_value(each) for each in value if each is not None]}}
        case _:
            return {"stringValue": json.dumps(value, ensure_ascii=False, default=str)}


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _bytes(value: Any) -> bytes:
    # Half of a surrogate pair, which a model can write, is nothing that UTF-8 can carry.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
