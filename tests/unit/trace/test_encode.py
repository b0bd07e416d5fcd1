"""What is sent is what OpenTelemetry's own schema reads, field by field, and within its limits, in both forms."""

import base64
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from loom_worker import __version__
from loom_worker.core.values.spans import SpanEvent, TraceSpan
from loom_worker.store.trace_outbox import TraceEntry
from loom_worker.trace.encode import (
    MOST_BYTES,
    MOST_BYTES_OF_SPAN,
    MOST_SPANS,
    TRUNCATED,
    Encoder,
    batches,
    rejected_spans,
)
from loom_worker.trace.names import SCHEMA_URL
from loom_worker.trace.redact import redacted_span
from tests.unit.trace.made_spans import START_US, TRACE_ID, span

RESOURCE = {"service.name": "loom", "service.version": __version__}
FORMS = {"json": Encoder(RESOURCE, is_json=True), "protobuf": Encoder(RESOURCE, is_json=False)}
in_both_forms = pytest.mark.parametrize("encoder", FORMS.values(), ids=FORMS)


def read(body: bytes) -> ExportTraceServiceRequest:
    """OTLP's JSON as protobuf's own parser reads it; ids are hexadecimal in OTLP, and base64 in protobuf's JSON."""
    request = json.loads(body)
    for resource in request["resourceSpans"]:
        for each in (one for scope in resource["scopeSpans"] for one in scope["spans"]):
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in each:
                    each[name] = base64.b64encode(bytes.fromhex(each[name])).decode()
    return json_format.ParseDict(request, ExportTraceServiceRequest())


def sent(encoder: Encoder, *spans: TraceSpan) -> ExportTraceServiceRequest:
    """A request in one of the forms, as it is read."""
    body = encoder.body([encoder.encoded(each) for each in spans])
    return read(body) if encoder is FORMS["json"] else ExportTraceServiceRequest.FromString(body)


def only(request: ExportTraceServiceRequest) -> Any:
    (resource,) = request.resource_spans
    (scope,) = resource.scope_spans
    (found,) = scope.spans
    return found


def value(found: Any) -> Any:
    """The Python value of an attribute."""
    kind = found.WhichOneof("value")
    return [value(each) for each in found.array_value.values] if kind == "array_value" else getattr(found, kind)


def attributes(found: Any) -> dict[str, Any]:
    return {each.key: value(each.value) for each in found}


def both(each: TraceSpan) -> list[ExportTraceServiceRequest]:
    return [sent(encoder, each) for encoder in FORMS.values()]


def test_the_json_is_as_otlp_has_it_ids_in_hexadecimal_long_numbers_as_text_and_enums_as_numbers() -> None:
    body = FORMS["json"].body([FORMS["json"].encoded(span(attributes={"n": 7, "known": False, "of": ["é", "\ud83d"]}))])
    (resource,) = json.loads(body)["resourceSpans"]
    (found,) = resource["scopeSpans"][0]["spans"]
    assert (found["traceId"], found["spanId"], found["parentSpanId"]) == (
        TRACE_ID,
        span().span_id,
        span().parent_id,
    )
    assert (found["startTimeUnixNano"], found["kind"]) == (str(START_US * 1000), 3)
    assert found["events"][0]["timeUnixNano"] == str(START_US * 1000 + 200_000_000)
    assert found["attributes"] == [
        {"key": "n", "value": {"intValue": "7"}},
        {"key": "known", "value": {"boolValue": False}},
        {"key": "of", "value": {"arrayValue": {"values": [{"stringValue": "é"}, {"stringValue": "?"}]}}},
    ]
    assert resource["resource"]["attributes"][0] == {"key": "service.name", "value": {"stringValue": "loom"}}


@in_both_forms
def test_every_field_arrives_where_the_schema_has_it(encoder: Encoder) -> None:
    given_span = span(status="Error", status_message="it broke")
    request = sent(encoder, given_span)
    (resource,) = request.resource_spans
    assert attributes(resource.resource.attributes) == RESOURCE
    (scoped,) = resource.scope_spans
    assert (scoped.scope.name, scoped.scope.version, scoped.schema_url) == ("loom", __version__, SCHEMA_URL)
    found = only(request)
    assert (found.trace_id.hex(), found.span_id.hex()) == (TRACE_ID, given_span.span_id)
    assert found.parent_span_id.hex() == given_span.parent_id
    assert (found.name, found.kind) == ("turn.reply", 3)
    assert (found.start_time_unix_nano, found.end_time_unix_nano) == (START_US * 1000, START_US * 1000 + 10**9)
    assert attributes(found.attributes) == given_span.attributes
    (event,) = found.events
    assert (event.name, event.time_unix_nano) == ("first token", START_US * 1000 + 200_000_000)
    assert attributes(event.attributes) == {"after_ms": 200.0}
    assert (found.status.code, found.status.message) == (2, "it broke")


@pytest.mark.cases(("status", "code"), [("Unset", 0), ("OK", 1), ("Error", 2)])
def test_statuses_have_the_numbers_of_the_schema(status: Any, code: int) -> None:
    assert [only(request).status.code for request in both(span(status=status))] == [code, code]


@pytest.mark.cases(
    ("kind", "number"), [("internal", 1), ("server", 2), ("client", 3), ("producer", 4), ("consumer", 5)]
)
def test_kinds_have_the_numbers_of_the_schema(kind: Any, number: int) -> None:
    assert [only(request).kind for request in both(span(kind=kind))] == [number, number]


def test_a_root_has_no_parent() -> None:
    assert [only(request).parent_span_id for request in both(span(parent_id=None))] == [b"", b""]


@pytest.mark.cases(
    ("given_value", "read_value"),
    [
        ("", ""),
        ("half a pair: \ud83d", "half a pair: ?"),
        (True, True),
        (-(1 << 63), -(1 << 63)),
        (1 << 63, str(1 << 63)),
        (float("inf"), float("inf")),
        (-0.5, -0.5),
        ([], []),
        (["a", 1, None], ["a", 1]),
        ({"a": "é"}, '{"a": "é"}'),
    ],
)
def test_a_value_of_any_type_is_one_that_the_schema_has(given_value: Any, read_value: Any) -> None:
    for request in both(span(attributes={"it": given_value, "none": None})):
        assert attributes(only(request).attributes) == {"it": read_value}


SHORT = st.text(max_size=20)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False)
ATTRIBUTES = st.dictionaries(
    st.text(min_size=1, max_size=20), st.booleans() | NUMBERS | SHORT | st.lists(SHORT, max_size=4), max_size=6
)


@given(ATTRIBUTES, st.lists(st.builds(SpanEvent, SHORT, st.integers(0, 1 << 53), ATTRIBUTES), max_size=3))
def test_json_and_protobuf_say_the_same(given_attributes: Any, events: Any) -> None:
    in_json, in_protobuf = both(span(attributes=given_attributes, events=tuple(events)))
    left, right = only(in_json), only(in_protobuf)
    assert attributes(left.attributes) == attributes(right.attributes)
    assert [(each.name, each.time_unix_nano) for each in left.events] == [
        (each.name, each.time_unix_nano) for each in right.events
    ]


def fitted(encoder: Encoder, given_span: TraceSpan) -> TraceSpan:
    """What of a span is sent, which is small enough as it is sent."""
    encoded = encoder.encoded(given_span)
    sent_bytes = len(encoder.body([encoded])) - len(encoder.body([]))
    assert sent_bytes - 4 <= encoded.size_bytes <= MOST_BYTES_OF_SPAN  # lengths around it take some bytes more
    return encoded.span


@in_both_forms
def test_a_small_span_stays_as_it_is(encoder: Encoder) -> None:
    assert fitted(encoder, span()) == span()


@in_both_forms
def test_a_long_value_is_cut_and_the_others_stay(encoder: Encoder) -> None:
    whole = span(attributes={"text": "x" * 50_000, "model": "m", "n": 7})
    small = fitted(encoder, whole)
    assert small.attributes == {"text": "x" * 3_999 + "…", "model": "m", "n": 7, TRUNCATED: True}
    assert small.events == whole.events


@in_both_forms
def test_of_many_values_the_largest_are_left_out(encoder: Encoder) -> None:
    many = {f"long.{n}": "x" * 300 for n in range(200)} | {f"n.{n}": n for n in range(20)}
    small = fitted(encoder, span(attributes=many))
    assert small.attributes[TRUNCATED] is True
    assert {f"n.{n}" for n in range(20)} <= small.attributes.keys()


@in_both_forms
def test_the_first_events_stay_when_there_are_too_many(encoder: Encoder) -> None:
    events = tuple(SpanEvent(f"event {n}", START_US, {"text": "x" * 200}) for n in range(1_000))
    small = fitted(encoder, span(events=events))
    assert 10 <= len(small.events) < 1_000
    assert [event.name for event in small.events] == [f"event {n}" for n in range(len(small.events))]
    assert small.attributes[TRUNCATED] is True


@pytest.mark.parametrize("text", ["\0" * 100_000, "\U0001f600" * 100_000, "\ud800" * 100_000, '"' * 100_000])
@in_both_forms
def test_the_size_counts_as_it_is_sent(encoder: Encoder, text: str) -> None:
    told = {"attributes": {text: text}, "events": (SpanEvent(text, 0, {text: [text] * 9}),)}
    small = fitted(encoder, span(name=text, status="Error", status_message=text, **told))
    assert small.attributes[TRUNCATED] is True


LONG = st.text(max_size=20).map(lambda text: text * 700)


@pytest.mark.heavy
@given(st.dictionaries(LONG, LONG | st.lists(LONG, max_size=3) | st.integers(), max_size=4), st.lists(LONG, max_size=6))
def test_no_span_is_too_large(attributes: dict[str, object], names: list[str]) -> None:
    events = tuple(SpanEvent(name, START_US, attributes) for name in names)
    whole = span(attributes=attributes, events=events)
    smaller = [fitted(encoder, whole) for encoder in FORMS.values()]
    assert [(small == redacted_span(whole)) != (TRUNCATED in small.attributes) for small in smaller] == [True, True]


def entry(n: int) -> TraceEntry:
    return TraceEntry(n, f"turn_{n}")


def test_a_turns_spans_are_split_where_a_request_is_full() -> None:
    made = {f"turn_{n}": tuple(span(1000 * n + k) for k in range(60)) for n in range(3)}
    found = list(batches([entry(n) for n in range(3)], made, FORMS["json"]))
    assert [len(batch.spans) for batch in found] == [100, 80]
    assert [batch.done for batch in found] == [[0], [1, 2]]
    assert [(batch.partial, batch.following) for batch in found] == [(1, 20), (None, 0)]


@in_both_forms
def test_no_request_is_larger_than_a_megabyte(encoder: Encoder) -> None:
    made = {"turn_1": tuple(span(n, attributes={f"a{k}": "x" * 900 for k in range(10)}) for n in range(400))}
    found = list(batches([entry(1)], made, encoder))
    assert sum(len(batch.spans) for batch in found) == 400
    for batch in found:
        assert len(encoder.body(batch.spans)) <= MOST_BYTES
        assert len(batch.spans) <= MOST_SPANS


def test_a_batch_ends_between_turns_without_a_torn_one() -> None:
    made = {f"turn_{n}": tuple(span(1000 * n + k) for k in range(50)) for n in range(3)}
    found = list(batches([entry(n) for n in range(3)], made, FORMS["json"]))
    assert [(batch.done, batch.partial) for batch in found] == [([0, 1], None), ([2], None)]


def test_a_span_is_sent_once_and_one_that_goes_on_not_yet() -> None:
    later = span(1)
    made = {"turn_1": (span(0), later, span(2, end_us=None), later)}
    (batch,) = batches(
        [entry(1), TraceEntry(2, "turn_1", later), TraceEntry(3, "turn_1", span(4))], made, FORMS["json"]
    )
    assert [each.span for each in batch.spans] == [span(0), later, span(4)]
    assert batch.done == [1, 2, 3]


def test_a_turn_that_is_gone_is_done() -> None:
    (batch,) = batches([entry(1)], {}, FORMS["json"])
    assert (batch.spans, batch.done) == ([], [1])


@in_both_forms
def test_a_span_is_redacted_before_it_is_cut(encoder: Encoder) -> None:
    encoded = encoder.encoded(span(attributes={"text": "ann@example.com " * 2_000, "password": "hunter2"}))
    body = encoder.body([encoded])
    assert (b"ann@" in body, b"hunter2" in body, encoded.span.attributes[TRUNCATED]) == (False, False, True)


RESPONSE = ExportTraceServiceResponse(partial_success={"rejected_spans": 4, "error_message": "x" * 117})


@pytest.mark.cases(
    "body, rejected",
    [
        (b'{"partialSuccess":{"rejectedSpans":2}}', 2),
        (b'\n{"partialSuccess":{"rejectedSpans":"3","errorMessage":"x"},"more":1}', 3),
        (RESPONSE.SerializeToString(), 4),  # begins as a line end and a brace do
        (ExportTraceServiceResponse(partial_success={"rejected_spans": -4}).SerializeToString(), 0),
        *((body, 0) for body in (b"", b"null", b"[]", b"{}", b"<html>", b"\xff\xff\xff", b"[" * 60_000)),
        *(
            (b'{"partialSuccess":%b}' % told, 0)
            for told in (b"null", b'{"rejectedSpans":"many"}', b'{"rejectedSpans":-5}', b'{"rejectedSpans":1e999}')
        ),
    ],
)
def test_what_an_answer_says_was_rejected_is_read_in_both_forms(body: bytes, rejected: int) -> None:
    assert rejected_spans(body) == rejected
