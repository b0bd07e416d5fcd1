import json
import socket

import pytest

from tests.support.web_stage import Live, WebStage

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
    assert b"waitress" not in answer
    return dict(json.loads(body))


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
