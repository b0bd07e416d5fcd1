"""Heads that two servers could read in two ways, over a raw socket: 400, and the connection is closed."""

import json
import socket

import pytest

from tests.support.web_stage import Live

GET = b"GET /healthz HTTP/1.1\r\n"
POST = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BEHIND = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""A request that must not be served: in the attacks it lies where one server sees a body, the other one a request."""


def answer(live: Live, *pieces: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
        told = b""
        try:
            while data := connection.recv(65536):
                told += data
        except ConnectionResetError:
            pass  # It was closed with some of ours unread.
        return told


@pytest.mark.cases(
    "head",
    [
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        POST + b"Content-Length: 2\r\nContent-Length: 30\r\n\r\n{}",
        POST + b"Content-Length: 2, 2\r\n\r\n{}",
        POST + b"Content-Length: +2\r\n\r\n{}",
        POST + b"Content-Length: \r\n\r\n{}",
        POST + b"Content-Length: 02\r\n\r\n{}",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: identity\r\n\r\n",
        POST + b"Transfer-Encoding: \r\n\r\n",
        POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        GET + b"Host: localhost\r\nHost: localhost\r\n\r\n",
        GET + b"Host: localhost\r\nhost: evil.example\r\n\r\n",
        GET + b"\r\n",
        b"GET /healthz RTSP/1.0\r\nHost: localhost\r\n\r\n",
        b"POST /v1/sessions RTSP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
        b"SOURCE /healthz ICE/1.0\r\nHost: localhost\r\n\r\n",
        b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        GET + b"Host:\r\n\r\n",
        GET + b"Host: [::1].evil.com\r\n\r\n",
        GET + b"Host: user@localhost\r\n\r\n",
        GET + b"Host: local host\r\n\r\n",
        GET + b"Host: localhost, localhost\r\n\r\n",
        GET + b"Host: localhost:80:80\r\n\r\n",
        b"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        GET + b"Host: localhost\r\nX-A: 1\r\n folded: 2\r\n\r\n",
        GET + b"Host: localhost\r\nX-A: 1\r\n\tfolded\r\n\r\n",
        GET + b"Host: localhost\nX-A: 1\r\n\r\n",
        b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
        GET + b"Host: localhost\r\nX-A: 1\rX-B: 2\r\n\r\n",
        b"GET /healthz HTTP/1.2\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n",
        b"GET /healthz\r\nHost: localhost\r\n\r\n",
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_400_and_nothing_behind_it_is_served(live: Live, head: bytes) -> None:
    told = answer(live, head + BEHIND)
    status, _, body = told.partition(b"\r\n\r\n")
    assert status.split()[1] == b"400", told
    assert json.loads(body)["status"] == 400  # One answer alone: behind a second one this would not parse.


def test_a_name_that_only_looks_like_loopback_is_403(live: Live) -> None:
    head = b"GET /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1.evil.com\r\nConnection: close\r\n\r\n"
    assert answer(live, head).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    "pieces",
    [
        [GET + b"Host: localhost\r", b"\nConnection: close\r\n\r\n"],
        [bytes([byte]) for byte in GET + b"Host: [::1]:80\r\nConnection: close\r\n\r\n"],
        [b"\r\n" + GET + b"Host: localhost\r\nConnection: close\r\n\r\n"],
        [b"GET http://LOCALHOST:80/healthz HTTP/1.1\r\nHost: localhost:80\r\nConnection: close\r\n\r\n"],
        [b"GET /healthz HTTP/1.0\r\n\r\n"],
    ],
)
def test_a_plain_head_is_served_however_it_is_cut(live: Live, pieces: list[bytes]) -> None:
    assert answer(live, *pieces).split()[1] == b"200"


def test_a_body_may_hold_line_feeds_and_come_with_its_head(live: Live) -> None:
    body = b'{\n"id": "s"\n}'
    head = POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert answer(live, head + body).split()[1] == b"201"
