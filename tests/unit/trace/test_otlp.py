"""What is sent is what OpenTelemetry's own schema reads, field by field."""

import base64
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from loom_worker import __version__
from loom_worker.core.values.spans import SpanEvent, TraceSpan
from loom_worker.trace import otlp, otlp_protobuf
from loom_worker.trace.names import SCHEMA_URL
from tests.unit.trace.made_spans import START_US, TRACE_ID, span

RESOURCE = {"service.name": "loom", "service.version": __version__}


def read(body: bytes) -> ExportTraceServiceRequest:
    """OTLP's JSON as protobuf's own parser reads it; ids are hexadecimal in OTLP, and base64 in protobuf's JSON."""
    request = json.loads(body)
    for resource in request["resourceSpans"]:
        for each in (one for scope in resource["scopeSpans"] for one in scope["spans"]):
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in each:
                    each[name] = base64.b64encode(bytes.fromhex(each[name])).decode()
    return json_format.ParseDict(request, ExportTraceServiceRequest())


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


def both(each: TraceSpan) -> tuple[ExportTraceServiceRequest, ExportTraceServiceRequest]:
    """A request in JSON and one in protobuf, as they are read."""
    in_json = read(otlp.request_body([otlp.encoded_span(each)], RESOURCE))
    return in_json, ExportTraceServiceRequest.FromString(otlp_protobuf.request_body([each], RESOURCE))


@pytest.mark.parametrize("which", [0, 1], ids=["json", "protobuf"])
def test_every_field_arrives_where_the_schema_has_it(which: int) -> None:
    sent = span(status="Error", status_message="it broke")
    request = both(sent)[which]
    (resource,) = request.resource_spans
    assert attributes(resource.resource.attributes) == RESOURCE
    (scoped,) = resource.scope_spans
    assert (scoped.scope.name, scoped.scope.version, scoped.schema_url) == ("loom", __version__, SCHEMA_URL)
    found = only(request)
    assert (found.trace_id.hex(), found.span_id.hex()) == (TRACE_ID, sent.span_id)
    assert found.parent_span_id.hex() == sent.parent_id
    assert (found.name, found.kind) == ("turn.reply", 3)
    assert (found.start_time_unix_nano, found.end_time_unix_nano) == (START_US * 1000, START_US * 1000 + 10**9)
    assert attributes(found.attributes) == sent.attributes
    (event,) = found.events
    assert (event.name, event.time_unix_nano) == ("first token", START_US * 1000 + 200_000_000)
    assert attributes(event.attributes) == {"after_ms": 200.0}
    assert (found.status.code, found.status.message) == (2, "it broke")


@pytest.mark.parametrize(("status", "code"), [("Unset", 0), ("OK", 1), ("Error", 2)])
def test_statuses_have_the_numbers_of_the_schema(status: Any, code: int) -> None:
    assert [only(request).status.code for request in both(span(status=status))] == [code, code]


@pytest.mark.parametrize(
    ("kind", "number"), [("internal", 1), ("server", 2), ("client", 3), ("producer", 4), ("consumer", 5)]
)
def test_kinds_have_the_numbers_of_the_schema(kind: Any, number: int) -> None:
    assert [only(request).kind for request in both(span(kind=kind))] == [number, number]


def test_a_root_has_no_parent() -> None:
    assert [only(request).parent_span_id for request in both(span(parent_id=None))] == [b"", b""]


@pytest.mark.parametrize(
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


VALUES = st.one_of(
    st.text(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), st.lists(st.text())
)


@given(
    st.dictionaries(st.text(min_size=1), VALUES),
    st.lists(st.builds(SpanEvent, st.text(), st.integers(0, 1 << 53), st.dictionaries(st.text(min_size=1), VALUES))),
)
def test_json_and_protobuf_say_the_same(given_attributes: Any, events: Any) -> None:
    in_json, in_protobuf = both(span(attributes=given_attributes, events=tuple(events)))
    left, right = only(in_json), only(in_protobuf)
    assert attributes(left.attributes) == attributes(right.attributes)
    assert [(each.name, each.time_unix_nano) for each in left.events] == [
        (each.name, each.time_unix_nano) for each in right.events
    ]
