import contextlib
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.guard.net.address import Deadline, target
from loom_worker.guard.net.http import HttpRequest, HttpResponse, NoResponse, retry_after_s, send_request
from tests.support.webhook_receiver import Answer as Told
from tests.support.webhook_receiver import WebhookReceiver, unused_port

SHORT_S = 0.15
"""A deadline that tests wait for."""


def asked(
    receiver: WebhookReceiver,
    told: Told,
    *,
    request: HttpRequest | None = None,
    timeout_s: float = 5,
    max_bytes: int = 99,
) -> HttpResponse:
    receiver.answer_with(told)
    where = target(receiver.url, allow_private=True)
    request = request or HttpRequest("GET", where.path)
    return send_request(where, ["127.0.0.1"], request, deadline=Deadline(timeout_s), max_bytes=max_bytes)


def test_a_request_arrives_as_it_was_put_and_the_answer_comes_back_whole(receiver: WebhookReceiver) -> None:
    request = HttpRequest("POST", "/a?b=%20", {"X-Mine": "1"}, b"body")
    response = asked(receiver, Told(201, {"X-Yours": "2"}, b"done"), request=request)
    assert (response.status, response.headers.get("x-yours"), response.body) == (201, "2", b"done")
    assert (response.is_longer, response.error) == (False, None)
    (received,) = receiver.received
    assert (received.method, received.path, received.body) == ("POST", "/a?b=%20", b"body")
    assert (received.headers["x-mine"], received.headers["host"]) == ("1", f"127.0.0.1:{receiver.port}")


def test_a_redirect_is_an_answer_like_any_other(receiver: WebhookReceiver) -> None:
    assert asked(receiver, Told(302, {"Location": "/elsewhere"})).headers["location"] == "/elsewhere"
    assert len(receiver.received) == 1


def test_of_a_long_body_only_the_beginning_is_kept(receiver: WebhookReceiver) -> None:
    response = asked(receiver, Told(body=b"x" * 30_000_000), max_bytes=1000)
    assert (response.body, response.is_longer) == (b"x" * 1000, True)


def test_an_endless_body_is_left_as_soon_as_it_is_too_long() -> None:
    def send_without_end(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b"x" * 65_536)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=send_without_end, args=(server,))
        thread.start()
        where = target(f"http://127.0.0.1:{server.getsockname()[1]}/", allow_private=True)
        deadline = Deadline(5)
        response = send_request(where, ["127.0.0.1"], HttpRequest("GET", "/"), deadline=deadline, max_bytes=1000)
        thread.join()
    assert (len(response.body), response.is_longer, response.error) == (1000, True, None)
    assert not deadline.is_over


def test_a_body_of_exactly_the_limit_is_whole(receiver: WebhookReceiver) -> None:
    response = asked(receiver, Told(body=b"x" * 100_000), max_bytes=100_000)
    assert (len(response.body), response.is_longer, response.error) == (100_000, False, None)


def test_a_packed_body_stays_packed(receiver: WebhookReceiver) -> None:
    assert asked(receiver, Told(headers={"Content-Encoding": "gzip"}, body=b"\x1f\x8b...")).body == b"\x1f\x8b..."


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 100\r\n\r\ncut",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\nno size\r\n",
    ],
)
def test_a_body_that_is_cut_off_is_never_taken_for_whole(receiver: WebhookReceiver, body: bytes) -> None:
    response = asked(receiver, Told(raw=b"HTTP/1.1 200 OK\r\n" + body))
    assert response.status == 200
    assert response.error


def test_a_body_that_drips_is_left_at_the_deadline_and_told_as_cut(receiver: WebhookReceiver) -> None:
    response = asked(receiver, Told(drip="body"), timeout_s=SHORT_S)
    assert response.error == f"no answer within {SHORT_S} s"


def test_a_body_without_a_length_is_whole_when_its_sender_closes(receiver: WebhookReceiver) -> None:
    response = asked(receiver, Told(raw=b"HTTP/1.1 200 OK\r\n\r\nall of it"))
    assert (response.body, response.error) == (b"all of it", None)


def test_only_a_request_that_left_may_have_arrived(receiver: WebhookReceiver) -> None:
    with pytest.raises(NoResponse, match="no answer within") as hung:
        asked(receiver, Told(hold=threading.Event()), timeout_s=SHORT_S)
    assert hung.value.may_have_arrived
    where = target(f"http://127.0.0.1:{unused_port()}/", allow_private=True)
    with pytest.raises(NoResponse, match="connection refused") as refused:
        send_request(where, ["127.0.0.1"], HttpRequest("GET", "/"), deadline=Deadline(5), max_bytes=1)
    assert not refused.value.may_have_arrived


def test_what_is_no_http_is_never_repeated(receiver: WebhookReceiver) -> None:
    with pytest.raises(NoResponse) as failed:
        asked(receiver, Told(raw=b"-ERR secret banner\r\n"))
    assert str(failed.value) == "the answer is not HTTP"


@pytest.mark.cases(
    ("header", "expected_s"),
    [
        (None, None),
        ("", None),
        ("120", 120.0),
        (" 0 ", 0.0),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("9" * 400, None),
        ("Wed, 18 Nov 2026 11:07:40 GMT", 60.0),
        ("Wed, 18 Nov 2026 11:07:40 -0000", 60.0),
        ("Wed, 18 Nov 2026 12:07:40 +0100", 60.0),
        ("Wed, 18 Nov 2020 11:07:40 GMT", 0.0),
        ("Wed, 99 Nov 2026 99:99:99 GMT", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header: str | None, expected_s: float | None) -> None:
    assert retry_after_s(header, now_s=1_795_000_000.0) == expected_s


@given(st.text(st.characters(max_codepoint=255), max_size=60) | st.from_regex(r"[A-Z][a-z]{2}, [0-9]+ Nov [0-9]+ .*"))
def test_no_retry_after_can_fail_the_attempt(header: str) -> None:
    wished_s = retry_after_s(header, now_s=1_795_000_000.0)
    assert wished_s is None or wished_s >= 0
