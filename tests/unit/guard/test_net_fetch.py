import socket
from dataclasses import replace
from typing import Any

import pytest

from loom_worker.core.errors import LoomError, Rejected, Transient
from loom_worker.guard.net.fetch import MAX_REDIRECTS
from loom_worker.guard.net.fetch import fetch as fetch_by
from loom_worker.skills.install import FETCHING
from loom_worker.skills.package import MAX_ARCHIVE_BYTES
from tests.support.http_server import Exchange, serving
from tests.support.webhook_receiver import Answer, WebhookReceiver, unused_port


def fetch(url: str, **options: Any) -> bytes:
    return fetch_by(url, replace(FETCHING, **options))


def fetched(answer: Answer, **options: Any) -> bytes:
    with WebhookReceiver() as server:
        server.answer_with(answer)
        return fetch(server.url, allow_private=True, **options)


def redirect(to: str) -> Answer:
    return Answer(302, {"Location": to})


def test_a_whole_answer_is_returned() -> None:
    with WebhookReceiver() as server:
        server.answer_with(Answer(body=b"whole"))
        assert fetch(f"{server.url}?a=b", allow_private=True) == b"whole"
    (asked,) = server.received
    assert (asked.method, asked.path, asked.headers["accept-encoding"]) == ("GET", "/hook?a=b", "identity")


def test_without_leave_only_https_to_public_hosts_is_asked() -> None:
    with WebhookReceiver() as server:
        for url in (server.url, server.url.replace("http:", "https:"), "https://localhost/", "https://10.0.0.1/"):
            with pytest.raises(Rejected, match="--allow-private"):
                fetch(url)
        assert server.received == ()


def test_plain_http_is_refused_even_to_a_public_host() -> None:
    with pytest.raises(Rejected, match="only https is fetched"):
        fetch("http://example.com/a.zip", lookup=lambda *_, **__: pytest.fail("it was looked up"))


def test_a_public_name_with_a_private_address_is_refused() -> None:
    def lookup(*_: object, **__: object) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 443))]

    with pytest.raises(Rejected, match="private"):
        fetch("https://example.com/a.zip", lookup=lookup)


@pytest.mark.cases("url", ["ftp://example.com/a", "https://u:p@example.com/", "https://", "https://a b/", "file:/x"])
def test_what_is_no_url_to_fetch_is_refused(url: str) -> None:
    with pytest.raises(Rejected):
        fetch(url, allow_private=True)


def test_a_redirect_is_followed_also_to_another_host() -> None:
    with WebhookReceiver() as first, WebhookReceiver() as second:
        second.answer_with(Answer(body=b"there"))
        first.answer_with(redirect("/next"), redirect(second.url))
        assert fetch(first.url, allow_private=True) == b"there"
    assert [asked.path for asked in first.received] == ["/hook", "/next"]


@pytest.mark.cases(
    "to",
    ["http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "gopher://127.0.0.1/", "http://[::ffff:1.1.1.1"],
)
def test_a_redirect_to_what_may_not_be_called_is_refused(to: str) -> None:
    with pytest.raises(Rejected):
        fetched(redirect(to))


def test_a_redirect_without_end_is_left_after_five() -> None:
    with WebhookReceiver() as server:
        server.answer_with(redirect("/again"))
        with pytest.raises(Rejected, match="more than 5 redirects"):
            fetch(server.url, allow_private=True)
        assert len(server.received) == MAX_REDIRECTS + 1


@pytest.mark.cases("status", [204, 401, 404, 500])
def test_an_error_is_no_archive(status: int) -> None:
    with pytest.raises(Rejected, match=f"HTTP {status}"):
        fetched(Answer(status, body=b"" if status == 204 else b"sorry"))


def test_an_endless_body_is_left_at_the_cap() -> None:
    sent: list[int] = []

    def endless(exchange: Exchange) -> None:
        exchange.begin_chunked()
        try:
            while True:
                exchange.chunk(bytes(64 * 1024))
                sent.append(64 * 1024)
        except OSError:
            exchange.close_connection = True

    with serving(endless) as url, pytest.raises(Rejected, match=f"larger than {MAX_ARCHIVE_BYTES} bytes"):
        fetch(url, allow_private=True)
    assert sum(sent) < 3 * MAX_ARCHIVE_BYTES


def test_a_body_that_is_shorter_than_it_says_is_not_taken() -> None:
    def short(exchange: Exchange) -> None:
        exchange.send_response(200)
        exchange.send_header("Content-Length", "1000")
        exchange.end_headers()
        exchange.wfile.write(b"short")
        exchange.cut()

    with serving(short) as url, pytest.raises(Transient, match="not whole"):
        fetch(url, allow_private=True)


@pytest.mark.parametrize("part", ["headers", "body"])
@pytest.mark.timeout(10)
def test_a_slow_drip_ends_at_the_deadline(part: Any) -> None:
    with pytest.raises(Transient, match=r"no answer within 0\.3 s"):
        fetched(Answer(drip=part), timeout_s=0.3)


def test_a_packed_answer_is_refused() -> None:
    with pytest.raises(Rejected, match="packed"):
        fetched(Answer(headers={"Content-Encoding": "gzip"}, body=b"x"))


def test_a_server_that_is_not_there_or_speaks_no_http_is_named() -> None:
    with pytest.raises(Transient, match="connection refused"):
        fetch(f"http://127.0.0.1:{unused_port()}/", allow_private=True)
    with pytest.raises(LoomError, match=r"^http://127\.0\.0\.1:[0-9]+/hook: "):
        fetched(Answer(raw=b"SSH-2.0-x\r\n"))


def test_https_is_not_answered_in_plain_http() -> None:
    with WebhookReceiver() as server, pytest.raises(Transient, match="TLS"):
        fetch(server.url.replace("http:", "https:"), allow_private=True)


def test_a_url_with_a_password_is_refused_without_repeating_it() -> None:
    for url in ("https://ada:secret@example.com/a.zip", "https://ada:sec/secret@example.com/a.zip"):
        with pytest.raises(Rejected) as refused:
            fetch(url, lookup=lambda *_, **__: pytest.fail("it was looked up"))
        assert str(refused.value).startswith("https://…@example.com/a.zip: ")
        assert "sec" not in str(refused.value)
    with pytest.raises(Rejected, match="password do not belong in a URL") as redirected:
        fetched(redirect("http://ada:secret@example.com/"))
    assert "secret" not in str(redirected.value)
