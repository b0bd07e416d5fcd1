import base64
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from loom_worker import __version__
from loom_worker.core.errors import Invalid
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.notifications import Delivery
from loom_worker.guard.net.address import Lookup
from loom_worker.trace.later import traceparent
from loom_worker.webhook.send import Attempt, check_url, send
from tests.support.certificates import certified
from tests.support.name_server import names
from tests.support.webhook_receiver import Answer, WebhookReceiver, unused_port
from tests.unit.guard.net.hostile import ALWAYS_REFUSED, PRIVATE


@pytest.mark.cases("url", PRIVATE)
def test_a_private_target_is_refused_and_told_what_opens_it(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_url(url, allow_private=False)
    (flaw,) = refused.value.flaws
    assert flaw.pointer == "/webhook/url"
    assert "LOOM_ALLOW_PRIVATE_WEBHOOKS=1" in flaw.detail
    assert str(refused.value) == f"webhook URL refused: {flaw.detail}"
    check_url(url, allow_private=True)


@pytest.mark.cases("url", ALWAYS_REFUSED)
def test_an_unfit_url_is_refused_at_its_place_in_the_request(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_url(url, allow_private=True)
    assert [flaw.pointer for flaw in refused.value.flaws] == ["/webhook/url"]


@pytest.mark.parametrize("port", [1, 22, 25, 81, 1023])
def test_a_port_of_a_system_service_is_refused_and_never_connected_to_unless_it_is_opened(port: int) -> None:
    url = f"https://example.com:{port}/hook"
    with pytest.raises(Invalid) as refused:
        check_url(url, allow_private=True)
    attempt = send(a_delivery(url), secret=SECRET, timeout_s=60.0, allow_private=True, now_us=now_us())
    assert "LOOM_TARGET_PORTS" in refused.value.flaws[0].detail
    assert "LOOM_TARGET_PORTS" in (attempt.error or "")
    check_url("https://example.com:1024/hook", allow_private=False)
    check_url(url, allow_private=False, ports=(port,))


def test_a_public_url_is_accepted() -> None:
    check_url("https://example.com/hook?a=1", allow_private=False)


SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER_SECRET = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()
SHORT_S = 0.15
"""A deadline that tests wait for."""


def a_delivery(url: str, *, secret: str | None = None, body: str = '{"type":"turn.completed"}') -> Delivery:
    return Delivery(
        id="dlv_1",
        workspace="main",
        turn_id="turn_1",
        url=url,
        secret=secret,
        body=body,
        status="pending",
        attempts=0,
        created_ms=0,
    )


def try_it(url: str, *, timeout_s: float = 60.0, lookup: Lookup = socket.getaddrinfo) -> Attempt:
    return send(
        a_delivery(url),
        secret=SECRET,
        timeout_s=timeout_s,
        allow_private=True,
        now_us=now_us(),
        lookup=lookup,
    )


def assert_over_at_the_deadline(started_s: float) -> None:
    """Not before it; without one the receiver, which never ends, would hang the test."""
    assert time.monotonic() - started_s >= SHORT_S * 0.9


def test_the_receiver_can_go_on_with_the_turns_trace_where_it_has_one(receiver: WebhookReceiver) -> None:
    traced = replace(a_delivery(receiver.url), trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
    for delivery in (traced, a_delivery(receiver.url)):
        assert send(delivery, secret=SECRET, timeout_s=60.0, allow_private=True, now_us=5_000_000).is_delivered
    first, second = receiver.wait_for(2, timeout_s=60)
    assert first.headers["traceparent"] == traceparent(traced, 5_000_000)
    assert first.headers["webhook-timestamp"] == "5"
    assert "traceparent" not in second.headers


def test_a_delivery_arrives_byte_for_byte_and_another_implementation_verifies_it(receiver: WebhookReceiver) -> None:
    body = '{"type":"turn.completed","data":{"output_text":"Grüße 語"}}'
    attempt = send(
        a_delivery(receiver.url + "?a=1&b=%20", body=body),
        secret=SECRET,
        timeout_s=60.0,
        allow_private=True,
        now_us=now_us(),
    )
    assert attempt == Attempt(200)
    (request,) = receiver.wait_for(1, timeout_s=60)
    assert (request.method, request.path, request.body) == ("POST", "/hook?a=1&b=%20", body.encode())
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == f"Loom/{__version__}"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["webhook-id"] == "dlv_1"
    assert Webhook(SECRET).verify(request.body, dict(request.headers))["type"] == "turn.completed"


def test_a_delivery_with_its_own_secret_is_signed_with_that(receiver: WebhookReceiver) -> None:
    delivery = a_delivery(receiver.url, secret=OTHER_SECRET)
    send(delivery, secret=SECRET, timeout_s=60.0, allow_private=True, now_us=now_us())
    (request,) = receiver.wait_for(1, timeout_s=60)
    assert Webhook(OTHER_SECRET).verify(request.body, dict(request.headers))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_not_followed(receiver: WebhookReceiver, status: int) -> None:
    receiver.answer_with(Answer(status=status, headers={"Location": receiver.url + "/elsewhere"}))
    attempt = try_it(receiver.url)
    assert (attempt.status, attempt.is_delivered) == (status, False)
    assert "redirect" in str(attempt.error)
    assert [request.path for request in receiver.received] == ["/hook"]


def test_410_says_that_the_receiver_is_gone(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Answer(status=410))
    attempt = try_it(receiver.url)
    assert attempt == Attempt(410, error="HTTP 410")
    assert attempt.is_gone


def test_an_overloaded_receivers_wish_is_told(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Answer(status=503, headers={"Retry-After": "120"}))
    assert try_it(receiver.url) == Attempt(503, error="HTTP 503", retry_after_s=120.0)


def test_headers_that_drip_in_end_at_the_deadline(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Answer(drip="headers"))
    started_s = time.monotonic()
    attempt = try_it(receiver.url, timeout_s=SHORT_S)
    assert_over_at_the_deadline(started_s)
    assert attempt == Attempt(None, error=f"no answer within {SHORT_S} s")


def test_a_body_that_drips_in_is_left_at_the_deadline_and_the_status_counts(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Answer(drip="body"))
    started_s = time.monotonic()
    attempt = try_it(receiver.url, timeout_s=SHORT_S)
    assert_over_at_the_deadline(started_s)
    assert attempt == Attempt(200)


def test_a_receiver_that_hangs_is_left_at_the_deadline(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Answer(hold=threading.Event()))
    started_s = time.monotonic()
    attempt = try_it(receiver.url, timeout_s=SHORT_S)
    assert_over_at_the_deadline(started_s)
    assert attempt == Attempt(None, error=f"no answer within {SHORT_S} s")


def test_a_server_that_never_takes_up_the_tls_handshake_is_left_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        started_s = time.monotonic()
        attempt = try_it(f"https://127.0.0.1:{deaf.getsockname()[1]}/", timeout_s=SHORT_S)
    assert_over_at_the_deadline(started_s)
    assert attempt.error == f"no answer within {SHORT_S} s"


def test_a_name_server_that_hangs_is_left_at_the_deadline() -> None:
    answered = threading.Event()

    def lookup(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        answered.wait()
        return []

    started_s = time.monotonic()
    attempt = try_it("http://slow.example/", timeout_s=SHORT_S, lookup=lookup)
    answered.set()
    assert_over_at_the_deadline(started_s)
    assert attempt == Attempt(None, error="the name server did not answer in time")


def test_only_the_beginning_of_an_endless_answer_is_read(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Answer(body=b"x" * 50_000_000))
    assert try_it(receiver.url) == Attempt(200)


def test_a_refused_connection_is_an_attempt_without_status() -> None:
    assert try_it(f"http://127.0.0.1:{unused_port()}/") == Attempt(None, error="connection refused")


def test_a_connection_closed_without_an_answer_is_an_attempt_without_status(receiver: WebhookReceiver) -> None:
    receiver.answer_with(Answer(raw=b""))
    assert try_it(receiver.url) == Attempt(None, error="closed without an answer")


@pytest.mark.parametrize(
    "raw",
    [
        b"-ERR unknown command 'POST' secret-banner\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
def test_what_is_not_http_is_told_without_repeating_it(receiver: WebhookReceiver, raw: bytes) -> None:
    receiver.answer_with(Answer(raw=raw))
    assert try_it(receiver.url) == Attempt(None, error="the answer is not HTTP")


@pytest.mark.parametrize(
    "body",
    [
        b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nab",
        b"Content-Length: 100\r\n\r\ncut",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    ],
)
def test_a_broken_body_behind_a_200_still_counts_as_delivered(receiver: WebhookReceiver, body: bytes) -> None:
    receiver.answer_with(Answer(raw=b"HTTP/1.1 200 OK\r\n" + body))
    assert try_it(receiver.url) == Attempt(200)


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("93.184.216.34", "127.0.0.1"), ("::ffff:127.0.0.1",)])
def test_a_name_with_a_private_address_is_refused_and_not_called(
    receiver: WebhookReceiver, addresses: tuple[str, ...]
) -> None:
    attempt = send(
        a_delivery(f"http://rebound.example:{receiver.port}/"),
        secret=SECRET,
        timeout_s=60.0,
        allow_private=False,
        now_us=now_us(),
        lookup=names(*addresses),
    )
    assert attempt.status is None
    assert "refused" in str(attempt.error)
    assert receiver.received == ()


def test_a_private_url_is_refused_at_the_attempt_too(receiver: WebhookReceiver) -> None:
    attempt = send(a_delivery(receiver.url), secret=SECRET, timeout_s=60.0, allow_private=False, now_us=now_us())
    assert "refused" in str(attempt.error)
    assert receiver.received == ()


def test_the_checked_address_is_called_under_the_urls_name_and_asked_for_once(receiver: WebhookReceiver) -> None:
    asked: list[str] = []

    def lookup(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        asked.append(host)
        return names("127.0.0.1")(host, port)

    attempt = try_it(f"http://hooks.example.test:{receiver.port}/hook", lookup=lookup)
    assert attempt.is_delivered
    assert asked == ["hooks.example.test"]
    assert receiver.received[0].headers["host"] == f"hooks.example.test:{receiver.port}"


def test_the_second_address_is_tried_when_the_first_refuses(receiver: WebhookReceiver) -> None:
    url = f"http://hooks.example.test:{receiver.port}/"
    assert try_it(url, lookup=names("127.0.0.2", "127.0.0.1")).is_delivered


def test_no_more_than_four_addresses_are_tried(receiver: WebhookReceiver) -> None:
    others = [f"127.0.0.{n}" for n in range(2, 6)]
    url = f"http://hooks.example.test:{receiver.port}/"
    assert try_it(url, lookup=names(*others, "127.0.0.1")).error == "connection refused"


def test_proxies_of_the_environment_are_not_used(receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused_port()}")
    assert try_it(receiver.url).is_delivered


def test_an_unknown_name_is_an_attempt_without_status() -> None:
    def lookup(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        raise socket.gaierror(-2, "Name or service not known")

    assert try_it("http://nowhere.example/", lookup=lookup) == Attempt(None, error="the host name cannot be resolved")


def test_a_malformed_secret_is_an_attempt_without_status(receiver: WebhookReceiver) -> None:
    delivery = a_delivery(receiver.url, secret="whsec_short")
    attempt = send(delivery, secret=SECRET, timeout_s=60.0, allow_private=True, now_us=now_us())
    assert "secret" in str(attempt.error)
    assert receiver.received == ()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certified(tmp_path_factory.mktemp("tls"), "hooks.example.test")


@pytest.fixture
def tls_names(certificate: Path) -> Iterator[tuple[WebhookReceiver, list[str | None]]]:
    """A receiver behind TLS, and the server names its callers asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "certificate.pem", certificate / "key.pem")
    asked: list[str | None] = []

    def keep(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        asked.append(name)

    context.sni_callback = keep
    with WebhookReceiver(tls=context) as receiver:
        yield receiver, asked


def test_tls_asks_for_and_checks_the_urls_name_though_an_address_is_dialled(
    tls_names: tuple[WebhookReceiver, list[str | None]], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, asked = tls_names
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "certificate.pem"))
    attempt = try_it(f"https://hooks.example.test:{receiver.port}/hook", lookup=names("127.0.0.1"))
    assert attempt == Attempt(200)
    assert asked == ["hooks.example.test"]
    assert receiver.received[0].headers["host"] == f"hooks.example.test:{receiver.port}"


def test_a_certificate_for_another_name_is_refused(
    tls_names: tuple[WebhookReceiver, list[str | None]], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, _ = tls_names
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "certificate.pem"))
    attempt = try_it(f"https://other.example.test:{receiver.port}/hook", lookup=names("127.0.0.1"))
    assert str(attempt.error).startswith("TLS: Hostname mismatch")
    assert receiver.received == ()


def test_a_certificate_of_an_unknown_authority_is_refused(
    tls_names: tuple[WebhookReceiver, list[str | None]],
) -> None:
    receiver, _ = tls_names
    attempt = try_it(f"https://hooks.example.test:{receiver.port}/hook", lookup=names("127.0.0.1"))
    assert str(attempt.error).startswith("TLS: self")
    assert receiver.received == ()


def test_a_drip_behind_tls_ends_at_the_deadline(
    tls_names: tuple[WebhookReceiver, list[str | None]], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, _ = tls_names
    receiver.answer_with(Answer(drip="headers"))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "certificate.pem"))
    started_s = time.monotonic()
    url = f"https://hooks.example.test:{receiver.port}/hook"
    attempt = try_it(url, timeout_s=SHORT_S, lookup=names("127.0.0.1"))
    assert_over_at_the_deadline(started_s)
    assert attempt.error == f"no answer within {SHORT_S} s"
