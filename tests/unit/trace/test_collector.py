"""What a collector can do to us: whatever it is, the request ends in time, and its answer means one thing."""

import json
import threading
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from loom_worker.core.settings_tree import TraceSettings
from loom_worker.trace.collector import MAX_RESPONSE_BYTES, Collector, PostResult
from tests.support.webhook_receiver import Answer, WebhookReceiver, unused_port

NOW_S = 1_800_000_000.0
SHORT_S = 0.15
"""A deadline that tests wait for."""
BODY = b'{"resourceSpans":[]}'


def collector(receiver: WebhookReceiver, *, timeout_s: float = 10.0, **fields: Any) -> Collector:
    return Collector(TraceSettings(f"http://127.0.0.1:{receiver.port}", **fields), timeout_s=timeout_s)


def test_a_body_is_posted_with_its_type_and_the_operators_headers(receiver: WebhookReceiver) -> None:
    headers = {"Authorization": "Bearer xyz", "x-team": "a"}
    assert collector(receiver, headers=headers).post(BODY, now_s=NOW_S) == PostResult()
    (request,) = receiver.received
    assert (request.method, request.path, request.body) == ("POST", "/v1/traces", BODY)
    assert request.headers["content-type"] == "application/x-protobuf"
    assert (request.headers["authorization"], request.headers["x-team"]) == ("Bearer xyz", "a")
    assert "content-encoding" not in request.headers


@pytest.mark.parametrize(
    ("path", "wanted"),
    [("", "/v1/traces"), ("/", "/v1/traces"), ("/otlp", "/otlp/v1/traces"), ("/a/v1/traces", "/a/v1/traces")],
)
def test_the_path_is_added_unless_it_is_there(receiver: WebhookReceiver, path: str, wanted: str) -> None:
    settings = TraceSettings(f"http://localhost:{receiver.port}{path}")
    assert Collector(settings).post(BODY, now_s=NOW_S) == PostResult()
    assert receiver.received[0].path == wanted


def test_a_body_arrives_as_it_is_whatever_its_size(receiver: WebhookReceiver) -> None:
    body = json.dumps(["x"] * 4096).encode()
    collector(receiver, protocol="json").post(body, now_s=NOW_S)
    (request,) = receiver.received
    assert "content-encoding" not in request.headers
    assert (request.headers["content-type"], request.body) == ("application/json", body)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(202), PostResult()),
        (Answer(200, body=b"<html>"), PostResult()),
        (Answer(200, body=b'{"partialSuccess":{"rejectedSpans":"3","errorMessage":"x"}}'), PostResult(rejected=3)),
        (Answer(301, {"Location": "/other"}), PostResult("refused", "HTTP 301; redirects are not followed")),
        (Answer(400), PostResult("refused", "HTTP 400")),
        (Answer(401), PostResult("refused", "HTTP 401")),
        (Answer(413), PostResult("refused", "HTTP 413")),
        (Answer(408), PostResult("unavailable", "HTTP 408")),
        (Answer(429, {"Retry-After": "7"}), PostResult("unavailable", "HTTP 429", retry_after_s=7.0)),
        (Answer(503, {"Retry-After": "never"}), PostResult("unavailable", "HTTP 503")),
        (Answer(500), PostResult("unavailable", "HTTP 500")),
        (Answer(raw=b""), PostResult("unreachable", "closed without an answer")),
        (Answer(raw=b"SSH-2.0-OpenSSH_9.2\r\n"), PostResult("unreachable", "the answer is not HTTP")),
    ],
)
def test_an_answer_means_one_thing(receiver: WebhookReceiver, answer: Answer, outcome: PostResult) -> None:
    receiver.answer_with(answer)
    assert collector(receiver).post(BODY, now_s=NOW_S) == outcome
    assert outcome.may_retry == (outcome.loss in ("unreachable", "unavailable"))
    assert len(receiver.received) == 1


@pytest.mark.parametrize(
    "answer",
    [Answer(hold=threading.Event()), Answer(drip="headers"), Answer(503, drip="headers")],
    ids=["hangs", "drips", "drips 503"],
)
def test_one_that_hangs_or_drips_ends_at_the_deadline(receiver: WebhookReceiver, answer: Answer) -> None:
    receiver.answer_with(answer)
    outcome = collector(receiver, timeout_s=SHORT_S).post(BODY, now_s=NOW_S)
    assert (outcome.loss, outcome.detail) == ("unreachable", "no answer within 0.15 s")


def test_a_body_without_end_does_not_undo_what_its_status_says(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Answer(200, drip="body"))
    assert collector(receiver, timeout_s=SHORT_S).post(BODY, now_s=NOW_S) == PostResult()


def test_a_huge_answer_is_not_read_to_its_end(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Answer(200, body=b" " * (MAX_RESPONSE_BYTES * 50)))
    assert collector(receiver).post(BODY, now_s=NOW_S) == PostResult()


def test_a_port_at_which_nothing_listens_is_unreachable() -> None:
    outcome = Collector(TraceSettings(f"http://127.0.0.1:{unused_port()}")).post(BODY, now_s=NOW_S)
    assert outcome == PostResult("unreachable", "connection refused")


def test_a_name_server_that_never_answers_ends_at_the_deadline() -> None:
    hang = threading.Event()

    def lookup(*_: object, **__: object) -> list[tuple[Any, ...]]:
        hang.wait()
        return []

    asked = Collector(TraceSettings("http://collector.example:4318"), timeout_s=SHORT_S, lookup=lookup)
    assert asked.post(BODY, now_s=NOW_S) == PostResult("unreachable", "the name server did not answer in time")
    hang.set()


@pytest.mark.parametrize("protocol", ["protobuf", "json"])
@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json", "text/html"])
def test_what_was_rejected_is_read_whatever_its_type_is_said_to_be(
    receiver: WebhookReceiver, protocol: str, kind: str
) -> None:
    in_protobuf = ExportTraceServiceResponse(partial_success={"rejected_spans": 4}).SerializeToString()
    for body in (in_protobuf, b'{"partialSuccess":{"rejectedSpans":"4"}}'):
        receiver.answer_with(Answer(200, {"Content-Type": kind}, body))
        assert collector(receiver, protocol=protocol).post(BODY, now_s=NOW_S) == PostResult(rejected=4)
