"""Servers behind URLs that refuse, forget, redirect, break off and die."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.agents import McpServer
from tests.support.http_server import Exchange, serving
from tests.support.mcp_servers.stage import Stage, listening, run, staged
from tests.support.until import AT_ONCE_S, until
from tests.support.webhook_receiver import unused_port

pytestmark = [pytest.mark.integration, pytest.mark.heavy, pytest.mark.takes(8)]

Odd = Callable[[Exchange, dict[str, Any]], bool]
"""Answers a request its own way and returns True, or leaves it to the usual."""


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged(timeout_s=30.0, TOKEN="s3cret") as stage:
        yield stage


def reply(exchange: Exchange, request: dict[str, Any], result: dict[str, Any]) -> None:
    exchange.answer(200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode())


def answering(odd: Odd) -> Callable[[Exchange], None]:
    """A small server of the protocol without sessions, odd where it is told to be."""

    def answer(exchange: Exchange) -> None:
        if exchange.command != "POST":
            exchange.answer(405, b"")
            return
        request = json.loads(exchange.body())
        if odd(exchange, request):
            return
        match request["method"]:
            case "initialize":
                version = request["params"]["protocolVersion"]
                info = {"name": "odd", "version": "1"}
                reply(exchange, request, {"protocolVersion": version, "capabilities": {}, "serverInfo": info})
            case "tools/list":
                reply(exchange, request, {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
            case "tools/call":
                reply(exchange, request, {"content": [{"type": "text", "text": "said"}]})
            case _:
                exchange.answer(202, b"")

    return answer


def on(method: str, answer: Callable[[Exchange], None]) -> Odd:
    def odd(exchange: Exchange, request: dict[str, Any]) -> bool:
        if request["method"] != method:
            return False
        answer(exchange)
        return True

    return odd


def at(url: str, **more: Any) -> McpServer:
    return McpServer("far", url=f"{url}/mcp", allow_private=True, **more)


def status(number: int) -> Callable[[Exchange], None]:
    return lambda exchange: exchange.answer(number, b"<html>", content_type="text/html")


def cut(exchange: Exchange) -> None:
    exchange.begin_chunked()
    exchange.chunk(b'event: message\r\ndata: {"jsonrpc"')
    exchange.cut()


def endless(exchange: Exchange) -> None:
    exchange.begin_chunked()
    for _ in range(40):
        exchange.chunk(b"x" * 1024 * 1024)


def packed(exchange: Exchange, number: int = 200) -> None:
    exchange.send_response(number)
    exchange.send_header("Content-Encoding", "gzip")
    exchange.send_header("Content-Length", "0")
    exchange.end_headers()


def away(exchange: Exchange) -> None:
    exchange.send_response(307)
    exchange.send_header("Location", "http://localhost:1/mcp")
    exchange.send_header("Content-Length", "0")
    exchange.end_headers()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/mcp", "http://localhost/mcp", "http://169.254.169.254/mcp"])
def test_a_private_address_is_refused_unless_the_file_allows_it(stage: Stage, url: str) -> None:
    assert "private and reserved targets are refused" in stage.problem(McpServer("far", url=url))


def test_what_hands_out_credentials_is_refused_even_then(stage: Stage) -> None:
    server = McpServer("far", url="http://169.254.169.254/mcp", allow_private=True)
    assert "private and reserved targets are refused" in stage.problem(server)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (status(401), "it refuses us (HTTP 401): check the credentials"),
        (status(403), "it forbids us this (HTTP 403)"),
        (status(404), "there is no such server at this URL (HTTP 404)"),
        (status(500), "it answered with HTTP 500"),
        (status(200), "Unexpected content type"),
        (away, "not followed"),
        (packed, "it compresses its answers"),
        (cut, "SSE stream"),
    ],
)
def test_a_server_that_cannot_be_greeted_says_why(stage: Stage, answer: Callable[[Exchange], None], why: str) -> None:
    with serving(answering(on("initialize", answer))) as url:
        assert why in stage.problem(at(url))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (status(401), "it refuses us (HTTP 401)"),
        (status(503), "it answered with HTTP 503"),
        (cut, "it broke off its answer"),
        (endless, "it broke off its answer"),
        (away, "not followed"),
    ],
)
def test_a_call_that_goes_wrong_fails_alone(stage: Stage, answer: Callable[[Exchange], None], why: str) -> None:
    wrong = on("tools/call", answer)
    left = [1]

    def odd(exchange: Exchange, request: dict[str, Any]) -> bool:
        return request["method"] == "tools/call" and bool(left) and (left.clear() or wrong(exchange, request))

    with serving(answering(odd)) as url:
        tools = stage.tools(at(url))
        with pytest.raises(ToolFailed) as failed:
            run(tools["echo"])
        assert why in str(failed.value)
        assert failed.value.code == "UNAVAILABLE" or "not followed" in why
        assert run(tools["echo"]) == "said"


def test_headers_carry_their_secrets_and_errors_do_not(stage: Stage) -> None:
    seen: list[str | None] = []

    def odd(exchange: Exchange, request: dict[str, Any]) -> bool:
        seen.append(exchange.headers.get("Authorization"))
        if request["method"] == "tools/call":
            error = {"code": -32000, "message": f"bad token {seen[-1]}"}
            exchange.answer(200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode())
        return request["method"] == "tools/call"

    with serving(answering(odd)) as url:
        tools = stage.tools(at(url, headers={"Authorization": "secret:TOKEN"}))
        with pytest.raises(ToolFailed, match=r"^bad token \*\*\*$"):
            run(tools["echo"])
    assert set(seen) == {"s3cret"}


def test_the_host_header_has_the_name_and_not_the_address(stage: Stage) -> None:
    hosts: list[str | None] = []

    def odd(exchange: Exchange, request: dict[str, Any]) -> bool:
        hosts.append(exchange.headers.get("Host"))
        return False

    with serving(answering(odd)) as url:
        port = url.rpartition(":")[2]
        assert run(stage.tools(at(f"http://localhost:{port}"))["echo"]) == "said"
    assert set(hosts) == {f"localhost:{port}"}


def test_a_server_that_is_not_there_fails(stage: Stage) -> None:
    assert "it cannot be reached" in stage.problem(at(f"http://127.0.0.1:{unused_port()}"))


def test_a_server_that_forgot_the_session_gets_a_new_one_and_the_call_succeeds(stage: Stage, tmp_path: Path) -> None:
    port = unused_port()
    with ExitStack() as first:
        server, _ = first.enter_context(listening(tmp_path, port=port))
        tools = stage.tools(server)
        old = run(tools["pid"])
    with listening(tmp_path, port=port):
        assert run(tools["pid"]) != old


class Sessions:
    """Answers as ``refuse`` says whatever comes without a session that it knows; asks are counted by method."""

    def __init__(self, refuse: Callable[[Exchange], None]) -> None:
        self.refuse = refuse
        self.known: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.is_strict = False
        self.slow = threading.Event()

    def __call__(self, exchange: Exchange, request: dict[str, Any]) -> bool:
        method, session = request["method"], exchange.headers.get("mcp-session-id")
        self.asked[method] += 1
        if method == "initialize":
            self.known.add(new := f"s{self.asked[method]}")
            exchange.extra = (("mcp-session-id", new),)
        elif request.get("params", {}).get("arguments", {}).get("is_slow"):
            self.slow.wait(AT_ONCE_S * 5)
        elif session not in self.known or (self.is_strict and method == "tools/call"):
            self.refuse(exchange)
            return True
        return False


def refusing(number: int, body: Any, content_type: str = "application/json") -> Callable[[Exchange], None]:
    text = body if isinstance(body, str) else json.dumps(body)
    return lambda exchange: exchange.answer(number, text.encode(), content_type=content_type)


RPC = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Connection closed"}}
REFUSALS = [
    (refusing(400, {**RPC, "error": {"code": -32000, "message": "no such session"}}), "no such session", None),
    (refusing(400, {**RPC, "error": {"code": -32602, "message": "no such session"}}), "no such", "INVALID_INPUT"),
    (refusing(400, RPC), "Connection closed", None),
    (refusing(400, f"event: message\ndata: {json.dumps(RPC)}\n\n", "text/event-stream"), "Connection closed", None),
    (refusing(400, "Session not found", "text/plain"), "HTTP 400: Session not found", "UNAVAILABLE"),
    (refusing(422, {"detail": "unknown session"}), 'HTTP 422: {"detail": "unknown session"}', "UNAVAILABLE"),
    (lambda exchange: packed(exchange, 400), "HTTP 400", "UNAVAILABLE"),
    (refusing(404, "<html>gone</html>", "text/html"), "HTTP 404", "UNAVAILABLE"),
    (refusing(401, "invalid token", "text/plain"), "check the credentials in its headers: invalid", "UNAVAILABLE"),
]


@pytest.mark.cases(("refuse", "why", "code"), REFUSALS)
def test_a_session_that_is_refused_is_opened_anew_once_and_then_the_servers_words_are_told(
    stage: Stage, refuse: Callable[[Exchange], None], why: str, code: str | None
) -> None:
    odd = Sessions(refuse)
    with serving(answering(odd)) as url:
        tools = stage.tools(at(url))
        assert run(tools["echo"]) == "said"
        odd.known.clear()
        assert run(tools["echo"]) == "said"
        assert odd.asked["initialize"] == 2
        odd.is_strict = True
        with pytest.raises(ToolFailed) as failed:
            run(tools["echo"])
        assert why in str(failed.value)
        assert failed.value.code == code
        assert (odd.asked["initialize"], odd.asked["tools/call"]) == (3, 5)


def test_a_call_that_is_under_way_survives_the_refusal_of_another(stage: Stage) -> None:
    odd = Sessions(refusing(400, RPC))
    with serving(answering(odd)) as url, ThreadPoolExecutor() as pool:
        tools = stage.tools(at(url))
        slow = pool.submit(run, tools["echo"], is_slow=True)
        until(lambda: odd.asked["tools/call"] == 1, 5, "it is under way")
        odd.is_strict = True
        with pytest.raises(ToolFailed):
            run(tools["echo"])
        odd.slow.set()
        assert slow.result() == "said"


def test_a_list_of_tools_that_is_refused_in_every_session_is_not_asked_for_without_end(stage: Stage) -> None:
    odd = Sessions(refusing(400, RPC))
    refused = on("tools/list", odd.refuse)
    with serving(answering(lambda *asked: odd(*asked) or refused(*asked))) as url:
        assert "Connection closed" in stage.problem(at(url))
        assert odd.asked["initialize"] == 2
        assert odd.asked["tools/list"] <= 4


def test_a_server_that_dies_in_mid_call_fails_that_call_and_the_next_says_that_it_is_gone(
    stage: Stage, tmp_path: Path
) -> None:
    with listening(tmp_path) as (server, process):
        tools = stage.tools(server)
        with pytest.raises(ToolFailed, match="is unavailable") as failed:
            run(tools["dies"])
        assert failed.value.code == "UNAVAILABLE"
        process.wait()
        with pytest.raises(ToolFailed, match="it cannot be reached"):
            run(tools["pid"])


def test_a_server_that_hangs_costs_its_timeout_and_not_the_close(tmp_path: Path) -> None:
    with staged(timeout_s=2.0) as stage, listening(tmp_path) as (server, _):
        tools = stage.tools(server)
        with pytest.raises(ToolFailed, match=r"did not answer within 1.5 s"):
            run(tools["blocks"])
        started_s = time.monotonic()
        stage.servers.close()
        assert time.monotonic() - started_s < AT_ONCE_S


def test_what_the_file_does_not_allow_is_not_reached_by_a_name_either(stage: Stage) -> None:
    with serving(answering(lambda _exchange, _request: False)) as url:
        assert "refused" in stage.problem(replace(at(url), allow_private=False))


def modern(exchange: Exchange, request: dict[str, Any]) -> bool:
    """A server that knows the protocol of 2026 only: no handshake, and every result says that it is complete."""
    whole = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    match request["method"]:
        case "initialize":
            error = {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"}}
            exchange.answer(400, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode())
        case "server/discover":
            reply(exchange, request, {**whole, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
        case "tools/list":
            tool = {"name": "echo", "inputSchema": {"type": "object"}}
            reply(exchange, request, {**whole, "tools": [tool]})
        case "tools/call":
            said = json.dumps(request["params"]["arguments"])
            reply(exchange, request, {"resultType": "complete", "content": [{"type": "text", "text": said}]})
        case _:
            return False
    return True


def test_a_server_without_handshake_is_spoken_to_in_its_own_way(stage: Stage) -> None:
    with serving(answering(modern)) as url:
        assert run(stage.tools(at(url))["echo"], a=1) == '{"a": 1}'
