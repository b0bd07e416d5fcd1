import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from flask import Flask, Response, request

from tests.support.until import AT_ONCE_S, until
from tests.support.web_stage import Live, WebStage
from web import serve
from web.detached import Exchange, FinalAnswer, detach
from web.serve import HttpServer

MIB = 1024 * 1024
HEAD = "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def spoken(live: Live, head: str, body: bytes = b"") -> bytes:
    """Send everything, then read the answer to its end: as a client does that does not look up from its upload."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=60) as connection:
        connection.sendall(head.encode("latin-1") + b"\r\n" + body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
            if b"\r\n\r\n" in answer and answer.endswith(b"}"):
                break
        return answer


def problem(answer: bytes, status: int) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith((f"HTTP/1.1 {status} ".encode(), f"HTTP/1.0 {status} ".encode()))
    assert b"application/problem+json" in head
    assert b"uvicorn" not in answer
    return dict(json.loads(body))


@pytest.mark.parametrize("length", [str(MIB + 1), "9" * 20, "9" * 21, "9" * 5000])
def test_a_declared_length_over_the_limit_is_413_before_a_byte_of_it_has_come(live: Live, length: str) -> None:
    with socket.create_connection(("127.0.0.1", live.port), timeout=60) as connection:
        connection.sendall(f"{HEAD}Content-Length: {length}\r\n\r\n".encode())
        answer = b""
        while piece := connection.recv(65536):  # until the server says no more
            answer += piece
    assert problem(answer, 413)["type"] == "/problems/request-entity-too-large"
    assert b"\r\nConnection: close\r\n" in answer


@pytest.mark.parametrize("size", [MIB + 1, 10 * MIB])
def test_a_client_gets_to_read_the_413_of_its_upload(live: Live, stage: WebStage, size: int) -> None:
    told = problem(spoken(live, f"{HEAD}Content-Length: {size}\r\n", b"x" * size), 413)
    assert told["type"] == "/problems/request-entity-too-large"
    assert told["instance"] == "/v1/sessions"
    assert stage.count() == 0


def test_a_client_that_asks_first_is_refused_before_it_sends(live: Live) -> None:
    problem(spoken(live, f"{HEAD}Content-Length: {10 * MIB}\r\nExpect: 100-continue\r\n"), 413)


def test_a_chunked_upload_gets_its_413_too(live: Live) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    problem(spoken(live, f"{HEAD}Transfer-Encoding: chunked\r\n", chunk * 48 + b"0\r\n\r\n"), 413)
    problem(spoken(live, f"{HEAD}Transfer-Encoding: chunked\r\n", b"fffffffff\r\n"), 413)  # before any of it has come


def test_an_endless_upload_is_cut(live: Live) -> None:
    with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
        spoken(live, f"{HEAD}Content-Length: {10**12}\r\n", b"x" * (100 * MIB))


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET / HTTP/1.1\r\nHost: localhost\r\nbad header\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n", 400),
        (f"GET / HTTP/1.1\r\nHost: localhost\r\nX-Big: {'x' * 70_000}\r\n", 431),
        (f"{HEAD}Transfer-Encoding: gzip\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n" + "X-Small: 123456789\r\n" * 4000, 431),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ],
)
def test_what_the_server_refuses_by_itself_is_problem_json(live: Live, head: str, status: int) -> None:
    assert problem(spoken(live, head), status)["status"] == status


@pytest.mark.parametrize(
    ("target", "instance"),
    [("/x/\xff?y", "/x/%FF"), ("http://[x/y", "http%3A//%5Bx/y"), ("/" + "\xff" * 5000, "/" + "%FF" * 999)],
)
def test_a_target_that_is_no_uri_is_a_problem_that_names_it(live: Live, target: str, instance: str) -> None:
    answer = spoken(live, f"GET {target} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\n")
    told = problem(answer, 400)
    assert (told["detail"], told["instance"], told["request_id"]) == ("Bad URI", instance, "mine")
    assert b"\r\nX-Request-Id: mine\r\n" in answer


def test_what_the_server_refuses_by_itself_has_an_id_and_a_trace(live: Live) -> None:
    answer = spoken(live, "GET / HTTP/1.1\r\nHost: localhost\r\nbad header\r\n")
    assert f"X-Request-Id: {problem(answer, 400)['request_id']}\r\n".encode() in answer
    assert b"\r\ntraceparent: 00-" in answer.lower()


def test_a_chunked_body_within_the_limit_is_served(live: Live) -> None:
    answer = spoken(live, f"{HEAD}Transfer-Encoding: chunked\r\n", b"2\r\n{}\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 201")


def test_the_server_does_not_say_what_it_is(live: Live) -> None:
    answer = spoken(live, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
    assert b"\r\nServer:" not in answer


def test_a_client_that_has_said_all_it_will_say_still_gets_its_answer(live: Live) -> None:
    with socket.create_connection(("127.0.0.1", live.port), timeout=60) as connection:
        body = b'{"input":"x"}'
        head = (
            HEAD.replace("/v1/sessions", "/v1/sessions/s/turns") + f"Prefer: wait=5\r\nContent-Length: {len(body)}\r\n"
        )
        connection.sendall(head.encode() + b"\r\n" + body)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(65536).startswith(b"HTTP/1.1 202")


@pytest.mark.cases(
    "body",
    [
        b"2;a=b\r\n{}\r\n0\r\n\r\n",
        b"02\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}\r\n00\r\n\r\n",
        b"2\r\n{}\r\n0;a\r\n\r\n",
        b"2 \r\n{}\r\n0\r\n\r\n",
        b"2\n{}\r\n0\r\n\r\n",
        b"2\r\n{}}\r\n0\r\n\r\n",
        b"0x2\r\n{}\r\n0\r\n\r\n",
        b"-2\r\n{}\r\n0\r\n\r\n",
        b"\r\n2\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}\r\n0\r\nX-Trailer: 1\r\n\r\n",
        b"ffffffffffffffff1\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_chunks_that_can_be_read_in_two_ways_are_400_and_nothing_behind_them_is_served(live: Live, body: bytes) -> None:
    told = spoken(live, f"{HEAD}Transfer-Encoding: chunked\r\n", body + GET_HEALTH)
    assert problem(told, 400)["detail"]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_chunked_body_is_the_same_however_it_is_cut(live: Live, stage: WebStage, cut: int) -> None:
    body = b'1\r\n{\r\nA\r\n"id":"cut"\r\n1\r\n}\r\n0\r\n\r\n' + GET_HEALTH
    with socket.create_connection(("127.0.0.1", live.port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode() + body[:cut])
        connection.sendall(body[cut:])
        assert [status for status, _ in answers(connection, 2)] == [201, 200]
    assert stage.count() == 1


GET_HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def answers(connection: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Status and body of so many answers, each with its length."""
    found, data = list[tuple[int, bytes]](), b""
    while len(found) < count:
        piece = connection.recv(65536)
        assert piece, (found, data)
        data += piece
        while b"\r\n\r\n" in data:
            head, _, rest = data.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            if len(rest) < length:
                break
            found.append((int(head.split()[1]), rest[:length]))
            data = rest[length:]
    return found


def test_an_upgrade_is_not_granted_and_its_body_is_a_body(live: Live, stage: WebStage) -> None:
    """As Java's client asks for HTTP/2 with each request; the parser alone takes the body for another protocol."""
    upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    body = b'{"id":"h2c"}'
    with socket.create_connection(("127.0.0.1", live.port), timeout=60) as connection:
        connection.sendall(f"{HEAD}{upgrade}Content-Length: {len(body)}\r\n\r\n".encode() + body + GET_HEALTH)
        assert [status for status, _ in answers(connection, 2)] == [201, 200]
    assert stage.count() == 1


def test_many_requests_at_once_are_answered_in_order_and_none_after_a_last_one(live: Live) -> None:
    paths = [f"/v1/turns/turn_{number}" for number in range(300)]
    asked = b"".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths)
    last = GET_HEALTH[:-2] + b"Connection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", live.port), timeout=60) as connection:
        connection.sendall(asked + last + GET_HEALTH)
        found = answers(connection, 301)
        assert [json.loads(body)["instance"] for _, body in found[:-1]] == paths
        assert not connection.recv(1)


@pytest.fixture
def app() -> Flask:
    """In place of the application: single views, in the ways that a view can answer."""
    return Flask("tiny")


@pytest.fixture
def tiny(app: Flask, stage: WebStage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., socket.socket]]:
    """Connects to a server of these views; /upload reads its body while it comes in."""
    monkeypatch.setattr(serve, "create_app", lambda *_: app)
    server = HttpServer(stage.service, streams=lambda _, path, __: (path == "/upload") << 40)
    server.start()

    def connect(head: str, body: bytes = b"") -> socket.socket:
        made = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        made.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".encode() + body)
        return made

    yield connect
    server.stop()


def everything(connection: socket.socket) -> bytes:
    told = bytearray()
    while piece := connection.recv(65536):
        told += piece
    return bytes(told)


def test_a_large_body_is_read_by_its_view_while_it_comes_in_and_is_not_held(
    app: Flask, tiny: Callable[..., socket.socket]
) -> None:
    size, seen = 20 * MIB, list[int]()

    @app.post("/upload")
    def upload() -> str:
        while piece := request.stream.read(65536):
            seen.append(len(piece))
        return str(sum(seen))

    with closing(tiny("POST /upload", f"Content-Length: {size}\r\n\r\n".encode())) as connection:
        connection.sendall(b"x" * MIB)
        until(lambda: sum(seen) > MIB // 2, AT_ONCE_S, "the view reads what has come")
        connection.sendall(b"x" * (size - MIB))
        assert everything(connection).endswith(str(size).encode())


def test_a_client_that_leaves_in_the_middle_of_its_upload_is_noticed_by_the_view(
    app: Flask, tiny: Callable[..., socket.socket]
) -> None:
    told = list[str]()

    @app.post("/upload")
    def upload() -> str:
        try:
            request.stream.read()
        except Exception as error:
            told.append(type(error).__name__)
        return ""

    with closing(tiny("POST /upload", b"Content-Length: 100000\r\n\r\nabc")):
        pass
    until(lambda: told, AT_ONCE_S, "the view is told")
    assert told == ["ClientDisconnected"]


def test_an_upload_that_its_view_does_not_read_waits_and_its_connection_is_closed_behind_the_answer(
    app: Flask, tiny: Callable[..., socket.socket]
) -> None:
    @app.post("/upload")
    def upload() -> tuple[str, int]:
        return "not wanted", 403

    with closing(tiny("POST /upload", f"Content-Length: {10**9}\r\n\r\n".encode())) as connection:
        assert b" 403 " in everything(connection)


def test_a_long_answer_is_made_no_faster_than_it_is_taken(app: Flask, tiny: Callable[..., socket.socket]) -> None:
    made = list[int]()

    @app.get("/long")
    def long() -> Response:
        def pieces() -> Iterator[bytes]:
            for number in range(300):
                made.append(number)
                yield b"x" * 65536

        return Response(pieces(), headers={"Content-Length": str(300 * 65536)})

    with closing(tiny("GET /long", b"\r\n")) as connection:
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        assert len(made) < 200  # what the system's buffers hold, and a piece
        assert len(everything(connection)) > 300 * 65536


@pytest.mark.parametrize("holds_answer", [True, False])
def test_a_coroutine_that_fails_closes_the_connection(
    app: Flask, tiny: Callable[..., socket.socket], caplog: pytest.LogCaptureFixture, *, holds_answer: bool
) -> None:
    async def fail(_: Exchange) -> None:
        raise ZeroDivisionError

    @app.get("/")
    def view() -> Any:
        detach(fail, holds_answer=holds_answer)
        return Response(iter([b"begun"]))

    with closing(tiny("GET /", b"\r\n")) as connection:
        told = everything(connection)
    assert told.endswith(b"" if holds_answer else b"5\r\nbegun\r\n")
    assert "ZeroDivisionError" in caplog.text


def test_a_coroutine_works_in_threads_and_gives_the_answer(app: Flask, tiny: Callable[..., socket.socket]) -> None:
    async def goes_on(exchange: Exchange) -> FinalAnswer:
        with pytest.raises(ZeroDivisionError):
            await exchange.in_thread(lambda: 1 // 0)
        return FinalAnswer(201, {"X-Made": "late"}, b"%d" % await exchange.in_thread(lambda: 6 * 7))

    @app.get("/")
    def view() -> Response:
        detach(goes_on, holds_answer=True)
        return Response("dropped", headers={"X-Kept": "yes"})

    with closing(tiny("GET /", b"\r\n")) as connection:
        head, _, body = everything(connection).partition(b"\r\n\r\n")
    assert (head.split()[1], body) == (b"201", b"42")
    assert b"X-Made: late" in head
    assert b"X-Kept: yes" in head
    assert b"Content-Length: 2\r\n" in head + b"\r\n"


def test_a_view_that_leaves_its_thread_by_an_exit_closes_its_connection_and_no_other(
    app: Flask, tiny: Callable[..., socket.socket]
) -> None:
    app.add_url_rule("/exit", "exit", lambda: exit(1))
    app.add_url_rule("/fine", "fine", lambda: "fine")
    with closing(tiny("GET /exit", b"\r\n")) as connection:
        assert everything(connection) == b""
    with closing(tiny("GET /fine", b"\r\n")) as connection:
        assert everything(connection).endswith(b"fine")


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_has_none_and_the_next_one_follows(
    app: Flask, tiny: Callable[..., socket.socket], status: int
) -> None:
    app.add_url_rule("/none", view_func=lambda: ("text", status))
    with closing(tiny("GET /none", b"\r\n")) as connection:
        told = everything(connection)
    assert told.endswith(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in told


def test_a_client_that_asks_first_is_told_to_go_on(live: Live) -> None:
    with socket.create_connection(("127.0.0.1", live.port), timeout=60) as connection:
        connection.sendall(f"{HEAD}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n".encode())
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert connection.recv(65536).startswith(b"HTTP/1.1 201 ")
