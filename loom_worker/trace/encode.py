"""Spans as they leave: redacted, small enough, in OTLP, as many together as one request may have. Pure.

Spans become OpenTelemetry's own and go through its encoder; the JSON is made from the encoder's message. Only a process
that exports imports this module, which takes 80 ms.
"""

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from google.protobuf.json_format import MessageToDict, Parse, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from loom_worker import __version__
from loom_worker.core.text import short
from loom_worker.core.values.json import Json
from loom_worker.core.values.spans import SpanEvent, TraceSpan
from loom_worker.store.trace_outbox import TraceEntry
from loom_worker.trace.names import SCHEMA_URL
from loom_worker.trace.redact import redacted_span

MOST_SPANS = 100
MOST_BYTES = 1_000_000
"""Bytes of one request."""
MOST_BYTES_OF_SPAN = 10_000
ENVELOPE_BYTES = 4_000
"""Kept free for what stands around the spans."""
TRUNCATED = "loom.truncated"
"""Attribute of a span that is not whole."""
LONGEST_CHARS = (4_000, 1_000, 250)
"""Characters of each text, tried in this order."""
NAME_CHARS = 200
INT64 = 1 << 63

_SCOPE = InstrumentationScope("loom", __version__, SCHEMA_URL)
_NO_SPAN = TraceSpan("1" * 32, "1" * 16, None, "", 0, 0)


@dataclass(frozen=True, slots=True)
class EncodedSpan:
    """A span as it leaves."""

    span: TraceSpan
    message: Any
    """OTLP's ``Span``: the message in protobuf, an object in JSON."""
    size_bytes: int
    """As it is sent, with what stands between it and the next one."""


class Encoder:
    """Encodes spans in one form of OTLP."""

    def __init__(self, resource: Json, *, is_json: bool) -> None:
        """Choose the form.

        Args:
            resource: what made the spans: attributes such as service.name.
        """
        self._is_json = is_json
        self._around = encode_spans([_readable(_NO_SPAN, Resource(resource))])
        del _spans_of(self._around)[:]

    def encoded(self, span: TraceSpan) -> EncodedSpan:
        """A span without what must not leave, and no larger than MOST_BYTES_OF_SPAN.

        Of a larger one texts are cut, then its largest attributes left out, then its last events.
        """
        versions = map(self._encoded, _smaller(redacted_span(span)))
        return next(each for each in versions if each.size_bytes <= MOST_BYTES_OF_SPAN)

    def body(self, spans: Sequence[EncodedSpan]) -> bytes:
        """An ExportTraceServiceRequest with these spans."""
        if self._is_json:
            request = MessageToDict(self._around)
            request["resourceSpans"][0]["scopeSpans"][0]["spans"] = [each.message for each in spans]
            return _json(request)
        message = ExportTraceServiceRequest()
        message.CopyFrom(self._around)
        _spans_of(message).extend(each.message for each in spans)
        return bytes(message.SerializeToString())

    def _encoded(self, span: TraceSpan) -> EncodedSpan:
        (message,) = _spans_of(encode_spans([_readable(span, Resource.get_empty())]))
        if not self._is_json:
            return EncodedSpan(span, message, message.ByteSize() + 4)  # of a field's number and length
        told = MessageToDict(message, use_integers_for_enums=True)
        ids = {name: b64decode(told[name]).hex() for name in ("traceId", "spanId", "parentSpanId") if name in told}
        return EncodedSpan(span, told | ids, len(_json(told | ids)) + 1)


@dataclass(slots=True)
class SpanBatch:
    """The spans of one request."""

    spans: list[EncodedSpan] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    """Entries of the outbox of which all spans are in this batch or an earlier one."""
    partial: int | None = None
    """The entry of which more spans follow."""
    following: int = 0
    """How many."""
    size_bytes: int = ENVELOPE_BYTES


def batches(
    entries: Sequence[TraceEntry], made: Mapping[str, tuple[TraceSpan, ...]], encoder: Encoder
) -> Iterator[SpanBatch]:
    """All spans of these entries; each once, though a turn's end and a later span may both name it.

    Args:
        made: the spans of each turn.
    """
    batch, seen = SpanBatch(), set[tuple[str, str]]()
    for entry in entries:
        own = made.get(entry.turn_id, ()) if entry.later is None else (entry.later,)
        new = {(span.trace_id, span.span_id): span for span in own if span.end_us is not None}
        left = [span for key, span in new.items() if key not in seen]
        seen.update(new)
        for position, span in enumerate(left):
            each = encoder.encoded(span)
            if len(batch.spans) == MOST_SPANS or batch.size_bytes + each.size_bytes > MOST_BYTES:
                batch.partial, batch.following = (entry.n, len(left) - position) if position else (None, 0)
                yield batch
                batch = SpanBatch()
            batch.spans.append(each)
            batch.size_bytes += each.size_bytes
        batch.done.append(entry.n)
    yield batch


def rejected_spans(body: bytes) -> int:
    """How many spans an ExportTraceServiceResponse, in either form, says were not taken; 0 if it cannot be read."""
    for read in (_response_in_json, ExportTraceServiceResponse.FromString):
        with suppress(ParseError, DecodeError, UnicodeError, RecursionError):
            return max(0, int(read(body).partial_success.rejected_spans))
    return 0


def _response_in_json(body: bytes) -> Any:
    return Parse(body, ExportTraceServiceResponse(), ignore_unknown_fields=True)


def _spans_of(request: ExportTraceServiceRequest) -> Any:
    return request.resource_spans[0].scope_spans[0].spans


def _json(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _readable(span: TraceSpan, resource: Resource) -> ReadableSpan:
    end_us = span.start_us if span.end_us is None else span.end_us
    return ReadableSpan(
        _text(span.name),
        _context(span.trace_id, span.span_id),
        _context(span.trace_id, span.parent_id) if span.parent_id else None,
        resource,
        _attributes(span.attributes),
        [Event(_text(event.name), _attributes(event.attributes), event.at_us * 1000) for event in span.events],
        kind=SpanKind[span.kind.upper()],
        status=Status(StatusCode[span.status.upper()], _text(span.status_message) if span.status == "Error" else None),
        start_time=span.start_us * 1000,
        end_time=end_us * 1000,
        instrumentation_scope=_SCOPE,
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _attributes(attributes: Json) -> dict[str, Any]:
    return {_text(name): _value(value) for name, value in attributes.items() if value is not None}


def _value(value: Any) -> Any:
    """A value that OTLP has a type for: an object becomes its JSON, and so does a number of more than 64 bits."""
    match value:
        case bool() | float():
            return value
        case int() if -INT64 <= value < INT64:
            return value
        case str():
            return _text(value)
        case list() | tuple():
            return [_value(each) for each in value if each is not None]
        case _:
            return _text(json.dumps(value, ensure_ascii=False, default=str))


def _text(text: str) -> str:
    """Text that UTF-8 can carry: half of a surrogate pair, which a model can write, becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def _smaller(span: TraceSpan) -> Iterator[TraceSpan]:
    """The span, then smaller and smaller versions, down to one without attributes and events."""
    yield span
    cut = span
    for chars in LONGEST_CHARS:
        cut = _cut(span, chars)
        yield cut
    while len(cut.attributes) > 1:
        sizes = {name: len(name) + len(str(value)) for name, value in cut.attributes.items() if name != TRUNCATED}
        kept = {*sorted(sizes, key=lambda name: sizes[name])[: len(sizes) // 2], TRUNCATED}
        cut = replace(cut, attributes={name: value for name, value in cut.attributes.items() if name in kept})
        yield cut
    while cut.events:
        cut = replace(cut, events=cut.events[: len(cut.events) // 2])
        yield cut


def _cut(span: TraceSpan, chars: int) -> TraceSpan:
    return replace(
        span,
        name=short(span.name, NAME_CHARS),
        attributes={**_cut_object(span.attributes, chars), TRUNCATED: True},
        events=tuple(
            SpanEvent(short(event.name, NAME_CHARS), event.at_us, _cut_object(event.attributes, chars))
            for event in span.events
        ),
        status_message=short(span.status_message, chars),
    )


def _cut_object(values: Json, chars: int) -> Json:
    return {short(name, NAME_CHARS): _cut_value(value, chars) for name, value in values.items()}


def _cut_value(value: Any, chars: int) -> Any:
    match value:
        case str() | dict():
            return short(str(value), chars)
        case list() | tuple():
            most = max(1, chars // 100)
            return [_cut_value(each, chars // most) for each in value[:most]]
        case _:
            return value
