"""Redis is killed, or loses its memory, under turns that run and wait; the database still knows them all."""

import threading
from itertools import pairwise

import pytest

from tests.support.messages_server import Hang, MessagesServer, Say
from tests.support.messages_wire import WireCall, answer, sse
from tests.support.runbook import follow
from tests.support.system import Json, System, spoken
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.takes(10)]

QUERY = "SELECT COUNT(*) AS products FROM products"


def begin(server: MessagesServer, system: System, release: threading.Event, name: str) -> dict[str, list[str]]:
    """Turns of two sessions, three each; the first of one session hangs in the middle of its stream."""
    body = sse(answer("slow but sure"))
    server.then(Hang(release, body, after_bytes=len(body) // 2))
    before = len(server.requests)
    turns = {f"{name}-a": [system.submit(f"{name}-a", "1")]}
    until(lambda: len(server.requests) > before, 20, "the first turn streams")
    for session in (f"{name}-a", f"{name}-b"):
        turns.setdefault(session, []).extend(system.submit(session, text) for text in ("2", "3"))
    return turns


def assert_all_in_order(system: System, turns: dict[str, list[str]]) -> None:
    for session, ids in turns.items():
        ended = [system.ended(turn_id) for turn_id in ids]
        assert [turn["status"] for turn in ended] == ["completed"] * len(ids)
        assert all(before["completed_at"] <= after["started_at"] for before, after in pairwise(ended))
        said = [(message["turn_id"], message["role"]) for message in system.messages(session)]
        assert said == [(turn_id, role) for turn_id in ids for role in ("user", "assistant")]


def running_answer(system: System, turns: dict[str, list[str]]) -> Json:
    return system.turn(next(iter(turns.values()))[0])


def test_all_turns_complete_in_order_when_the_embedded_server_is_killed(server: MessagesServer, system: System) -> None:
    release, before = threading.Event(), system.output
    turns = begin(server, system, release, "killed")
    pid = system.kill("valkey")
    until(lambda: system.children.get("valkey", pid) != pid, 10, "valkey is started again")
    turns["killed-b"].append(system.submit("killed-b", "4"))
    release.set()
    assert_all_in_order(system, turns)
    assert "valkey ended (SIGKILL); restarting" in system.output.removeprefix(before)
    first = running_answer(system, turns)
    assert (first["output_text"], first["attempt"], first["usage"]["llm_calls"]) == ("slow but sure", 1, 1)
    follow(system, "redis restart, status")


@pytest.mark.heavy
def test_all_turns_complete_in_order_when_redis_forgets_everything(server: MessagesServer, system: System) -> None:
    release = threading.Event()
    turns = begin(server, system, release, "flushed")
    with system.redis() as client:
        client.flushall()
    release.set()
    assert_all_in_order(system, turns)
    first = running_answer(system, turns)
    assert (first["output_text"], first["attempt"], first["usage"]["llm_calls"]) == ("slow but sure", 1, 1)


def test_the_events_of_a_turn_are_told_again_as_they_were_after_redis_forgot_them(
    server: MessagesServer, system: System
) -> None:
    call = WireCall("toolu_count", "execute_sql", {"sql": QUERY})
    server.then(Say("I look it up.", [call]), Say("That many."))
    turn_id = system.submit("retold", "How many products are there?")
    live = list(system.events(turn_id))
    assert spoken(live) == "That many."
    with system.redis() as client:
        client.flushall()
    assert list(system.events(turn_id)) == live
