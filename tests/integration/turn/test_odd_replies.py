"""Replies that no provider would take back: the session goes on, also where it was broken before."""

import json
import sqlite3
from contextlib import closing

import pytest

from tests.support.engine import Engine
from tests.support.messages_server import MessagesServer, Say, Stream, events
from tests.support.messages_wire import WireCall, block, finish, start, text_block, thinking_block

pytestmark = [pytest.mark.heavy, pytest.mark.integration, pytest.mark.takes(6)]


def answers(engine: Engine, session: str, *questions: str) -> list[str | None]:
    ended = [engine.ended(engine.submit(session, question)) for question in questions]
    assert [turn.status for turn in ended] == ["completed"] * len(questions), [turn.error for turn in ended]
    return [turn.output_text for turn in ended]


@pytest.mark.parametrize("name", ["", "f" * 276, "functions.no_such<|channel|>", "größe messen"])
def test_a_tool_that_the_model_made_up_spoils_its_call_and_not_the_session(
    engine: Engine, server: MessagesServer, name: str
) -> None:
    server.then(Say("", [WireCall("call.0", name)]), Say("I have no such tool."))
    session = f"made-up-{len(name)}"
    assert answers(engine, session, "first", "second") == ["I have no such tool.", "echo: second"]


def test_an_id_that_a_server_gives_in_every_turn_spoils_none(engine: Engine, server: MessagesServer) -> None:
    for _ in range(2):
        server.then(Say("", [WireCall("call_0", "no_such")]), Say("Done."))
    assert answers(engine, "same-id", "first", "second", "third") == ["Done.", "Done.", "echo: third"]


def test_a_session_that_such_a_call_has_broken_heals(engine: Engine, server: MessagesServer) -> None:
    server.then(Say("", [WireCall("c1", "never_heard_of")]), Say("Done."))
    answers(engine, "broken", "first")
    broken = json.dumps([{"id": "c 1", "name": "functions.x<|channel|>", "arguments": {}, "flaw": None}])
    with closing(sqlite3.connect(engine.home / "loom.db")) as file, file:
        stored = "UPDATE messages SET tool_calls_json = ? WHERE tool_calls_json LIKE '%never_heard_of%'"
        assert file.execute(stored, (broken,)).rowcount == 1
    engine.workers["first"].kill()  # it has the session in memory as it was
    engine.start_worker("second")
    assert answers(engine, "broken", "second") == ["echo: second"]


def test_thinking_that_a_gateway_signed_with_another_key_does_not_end_the_session(
    engine: Engine, server: MessagesServer
) -> None:
    for signature in ("of another key", ""):
        reply = [thinking_block(0, "hm", signature), text_block(1, ["Thought."])]
        server.then(events(start(), *reply, finish("end_turn")))
        assert answers(engine, f"signed {signature}", "first", "second") == ["Thought.", "echo: second"]


def test_a_model_that_only_pauses_is_asked_twice_and_no_more(engine: Engine, server: MessagesServer) -> None:
    asked = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    pause = events(start(), block(0, asked, []), finish("pause_turn"))
    before = len(server.requests)
    server.then(pause, pause)
    turn = engine.ended(engine.submit("paused", "search"))
    assert (turn.status, turn.reason, (turn.error or {})["type"]) == ("incomplete", "limits", "paused")
    assert len(server.requests) == before + 2
    assert answers(engine, "paused", "second") == ["echo: second"]


def test_keep_alives_without_data_neither_break_a_turn_nor_open_a_breaker(
    engine: Engine, server: MessagesServer
) -> None:
    alive = b"event: ping\ndata:\n\ndata: ping\n\n: x\n\nevent: content_block_delta\n\n"
    body = events(start(), text_block(0, ["ok"]), finish("end_turn")).body.replace(b"event: content_block_start", alive)
    server.then(*[Stream(body)] * 3)
    assert answers(engine, "alive", "1", "2", "3") == ["ok"] * 3
