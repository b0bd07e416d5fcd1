"""Clients that ask for much and read nothing: the web process stays small and answers everybody else."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from tests.support.memory_use import MEGABYTE, resident_bytes
from tests.support.messages_server import MessagesServer, Stream
from tests.support.messages_wire import finish, sse, start, text_block
from tests.support.system import System, plain_agent
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(20)]

READERS = 40
TURNS = 12
GROWTH = 250 * MEGABYTE
"""Of the web process, over 40 readers. They took it to 3.3 GB when a list of 25 MB was one answer."""
PIECES = ["word " * 4_000] * 95
REPLY = "".join(PIECES)
STREAM = Stream(sse([start(), *text_block(0, PIECES), *finish("end_turn")]))


@pytest.fixture(scope="module")
def loom(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Turns whose answers have 1.9 MB each."""
    folder = tmp_path_factory.mktemp("slow")
    with (
        MessagesServer(script=lambda body: STREAM) as model,
        System(folder / "home", ANTHROPIC_BASE_URL=model.url, LOOM_AGENTS_DIR=plain_agent(folder / "agents")) as loom,
    ):
        for turn_id in [loom.submit(f"s{n}", "much, please") for n in range(TURNS)]:
            assert loom.ended(turn_id, 90)["status"] == "completed"
        yield loom


def ask_and_read_nothing(loom: System, path: str) -> socket.socket:
    """A connection with a small window on which an answer waits to be read."""
    parts = urlsplit(loom.url)
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.settimeout(30)
    reader.connect((parts.hostname, parts.port))
    reader.sendall(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    return reader


@pytest.mark.parametrize("kind", ["lists", "messages", "events"])
def test_readers_that_read_nothing_take_little_of_the_web(loom: System, kind: str) -> None:
    turn_id = loom.get("/v1/turns?limit=1").json["data"][0]["id"]
    session = loom.turn(turn_id)["session_id"]
    path = {
        "lists": "/v1/turns?limit=500",
        "messages": f"/v1/sessions/{session}/messages?limit=500",
        "events": f"/v1/turns/{turn_id}/events",
    }[kind]
    web = loom.children["web"]
    before = resident_bytes(web)
    with ExitStack() as open_readers:
        readers = [open_readers.enter_context(ask_and_read_nothing(loom, path)) for _ in range(READERS)]
        for reader in readers:
            assert reader.recv(15) == b"HTTP/1.1 200 OK"
        until(lambda: loom.get("/healthz").status == 200, 30, "others are answered")
        assert resident_bytes(web) - before < GROWTH
    assert resident_bytes(web, "VmHWM") - before < 2 * GROWTH


def test_a_list_of_large_turns_is_walked_in_small_pages(loom: System) -> None:
    seen, after = [], ""
    while True:
        answer = loom.get(f"/v1/turns?limit=500{after}")
        assert len(answer.body) < 1_200_000
        seen += [turn["id"] for turn in answer.json["data"]]
        assert all(turn["truncated"] and len(turn["output_text"]) < 17_000 for turn in answer.json["data"])
        if not answer.json["has_more"]:
            break
        after = f"&after={answer.json['next']}"
    assert len(seen) == len(set(seen)) == TURNS
    whole = loom.turn(seen[0])
    assert whole["output_text"] == REPLY
    assert "truncated" not in whole


def test_a_deleted_session_leaves_no_event_log(loom: System) -> None:
    turn_id = loom.submit("gone", "much, please")
    loom.ended(turn_id, 90)
    with loom.redis() as client:
        assert client.exists(f"loom:events:{turn_id}")
        assert loom.delete("/v1/sessions/gone").status == 204
        assert [key for key in client.scan_iter("loom:e*") if turn_id in key] == []
