import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from loom_worker.backends.rest.client import MAX_ANSWER_BYTES, RestClient, retry_advice
from loom_worker.core.errors import ToolFailed
from loom_worker.guard.net.address import Lookup, target
from loom_worker.guard.net.http import HttpRequest, HttpResponse
from tests.support.webhook_receiver import Answer as Told
from tests.support.webhook_receiver import WebhookReceiver, unused_port

SHORT_S = 0.15
"""A deadline that tests wait for."""


def a_client(url: str, *, timeout_s: float = 5, lookup: Lookup = socket.getaddrinfo, **headers: str) -> RestClient:
    return RestClient(target(url, allow_private=True), headers, timeout_s, allow_private=True, lookup=lookup)


def refusal(ask: Callable[[], HttpResponse]) -> str:
    with pytest.raises(ToolFailed) as failed:
        ask()
    assert failed.value.code == "UNAVAILABLE"
    return str(failed.value)


def test_the_clients_own_headers_win_over_the_models(receiver: WebhookReceiver) -> None:
    client = a_client(receiver.url, Authorization="Bearer s3cret")
    client.ask(HttpRequest("GET", "/a?b=1", {"Authorization": "Bearer mine", "X-Own": "1"}))
    (request,) = receiver.received
    assert (request.path, request.headers["x-own"]) == ("/a?b=1", "1")
    assert request.headers["authorization"] == "Bearer s3cret"
    assert request.headers["accept-encoding"] == "gzip"
    assert request.headers["accept"].startswith("application/json")


def test_the_secret_is_not_in_the_clients_own_words() -> None:
    assert "s3cret" not in repr(a_client("http://127.0.0.1/", Authorization="Bearer s3cret"))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_within_the_origin_is_followed(receiver: WebhookReceiver, status: int) -> None:
    absolute = f"http://127.0.0.1:{receiver.port}/c?d=%20"
    receiver.answer_with(Told(status, {"Location": "../b"}), Told(status, {"Location": absolute}), Told(200))
    assert a_client(receiver.url, Authorization="x").ask(HttpRequest("GET", "/a/a")).status == 200
    assert [request.path for request in receiver.received] == ["/a/a", "/b", "/c?d=%20"]
    assert {request.headers["authorization"] for request in receiver.received} == {"x"}


def test_three_redirects_are_followed_and_no_fourth(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Told(302, {"Location": "/again"}))
    assert refusal(lambda: a_client(receiver.url).ask(HttpRequest("GET", "/"))) == "more than 3 redirects"
    assert len(receiver.received) == 4


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("http://other.example/a?token=1#x", "http://other.example/a, which is not followed"),
        ("//other.example/a", "http://other.example/a, which"),
        ("http://127.0.0.1:1/", "http://127.0.0.1:1/, which"),
        ("https://127.0.0.1:{port}/", "https://127.0.0.1:{port}/, which"),
        ("http://localhost:{port}/", "http://localhost:{port}/, which"),
        ("http://169.254.169.254/latest", "may not be called"),
        ("http://u:p@127.0.0.1:{port}/", "may not be called"),
        ("file:///etc/passwd", "may not be called"),
        ("gopher://127.0.0.1:{port}/_x", "may not be called"),
        ("http://[::1", "may not be called"),
    ],
)
def test_a_redirect_to_elsewhere_is_told_and_not_followed(receiver: WebhookReceiver, location: str, told: str) -> None:
    receiver.answer_with(Told(302, {"Location": location.format(port=receiver.port)}))
    assert told.format(port=receiver.port) in refusal(lambda: a_client(receiver.url).ask(HttpRequest("GET", "/")))
    assert len(receiver.received) == 1


def test_a_redirect_of_what_changes_something_is_not_followed(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Told(307, {"Location": "/b"}))
    question = HttpRequest("POST", "/a", body=b"x")
    assert "which is not followed" in refusal(lambda: a_client(receiver.url).ask(question))
    assert len(receiver.received) == 1


@pytest.mark.parametrize("told", [Told(drip="headers"), Told(drip="body"), Told(hold=threading.Event())])
def test_a_slow_answer_ends_at_the_deadline(receiver: WebhookReceiver, told: Told) -> None:
    receiver.answer_with(told)
    text = refusal(lambda: a_client(receiver.url, timeout_s=SHORT_S).ask(HttpRequest("GET", "/")))
    assert f"no answer within {SHORT_S} s" in text
    assert "unknown" not in text


def test_all_redirects_share_one_deadline(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Told(302, {"Location": "/b"}), Told(hold=threading.Event()))
    text = refusal(lambda: a_client(receiver.url, timeout_s=SHORT_S).ask(HttpRequest("GET", "/")))
    assert f"no answer within {SHORT_S} s" in text


def test_a_change_that_was_not_answered_is_told_as_unknown(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Told(raw=b""))
    question = HttpRequest("POST", "/", body=b"x")
    text = refusal(lambda: a_client(receiver.url).ask(question))
    assert text == "closed without an answer; whether this POST was done is unknown"
    text = refusal(lambda: a_client(f"http://127.0.0.1:{unused_port()}").ask(question))
    assert text == "connection refused"


def test_a_body_that_is_cut_off_is_a_failure(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Told(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}"))
    assert "the body is not whole" in refusal(lambda: a_client(receiver.url).ask(HttpRequest("GET", "/")))


def test_no_more_than_the_limit_is_read(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Told(body=b"x" * (MAX_ANSWER_BYTES + 5_000_000)))
    answer = a_client(receiver.url).ask(HttpRequest("GET", "/"))
    assert (len(answer.body), answer.is_longer) == (MAX_ANSWER_BYTES, True)


def test_proxies_of_the_environment_are_not_used(receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused_port()}")
    assert a_client(receiver.url).ask(HttpRequest("GET", "/")).status == 200


@pytest.mark.cases(("header", "words"), [("120", " (asks to wait 120 s)"), (None, ""), ("soon", ""), ("9" * 99, "")])
def test_the_wish_to_be_left_alone_is_put_in_words(header: str | None, words: str) -> None:
    headers: dict[str, Any] = {} if header is None else {"Retry-After": header}
    assert retry_advice(HttpResponse(429, headers, b"")) == words
