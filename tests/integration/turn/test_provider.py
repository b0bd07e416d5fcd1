"""A provider that is busy, breaks off or refuses, met by a real worker through the real SDK."""

import pytest

from tests.support.engine import Engine
from tests.support.messages_server import Cut, MessagesServer, Say, failure
from tests.support.messages_wire import answer, sse
from tests.support.system import Told, spoken
from tests.support.until import until

pytestmark = [pytest.mark.heavy, pytest.mark.integration, pytest.mark.takes(8)]

BUSY = failure(529, "overloaded_error", "Overloaded")


def test_a_provider_that_is_busy_twice_is_asked_again_and_answers(engine: Engine, server: MessagesServer) -> None:
    server.then(BUSY, BUSY, Say("At last."))
    turn = engine.ended(engine.submit("busy", "hello"))
    assert (turn.status, turn.output_text, turn.attempt) == ("completed", "At last.", 1)
    assert turn.usage.llm_calls == 1


def test_a_stream_that_is_cut_is_told_from_the_start_again_and_no_text_is_doubled(
    engine: Engine, server: MessagesServer
) -> None:
    body = sse(answer("one two three four five six seven eight"))
    server.then(Cut(body, len(body) * 2 // 3), Say("one two three four five six seven eight"))
    turn = engine.submit("cut", "count")
    events = [Told(event.id, event.type, event.data) for event in engine.events(turn)]
    kinds = [event.type for event in events]
    assert kinds.count("turn.retrying") == 1
    assert "output_text.delta" in kinds[: kinds.index("turn.retrying")]
    assert spoken(events) == engine.turn(turn).output_text == "one two three four five six seven eight"
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    said = [message.chat.text for message in engine.messages("cut")]
    assert said == ["count", "one two three four five six seven eight"]


def test_a_provider_that_stays_busy_parks_the_turn_without_a_worker_or_an_attempt(
    engine: Engine, server: MessagesServer
) -> None:
    server.then(BUSY, BUSY, BUSY, Say("At last."))
    turn = engine.submit("parked", "hello")
    state = "SELECT held_by, deaths, status FROM turns WHERE id = ? AND parked_until_ms IS NOT NULL"
    assert until(lambda: engine.rows(state, turn.id), 20, "the turn is parked") == [(None, 0, "in_progress")]
    assert engine.service.queue_stats("default")["waiting"] == 1
    ended = engine.ended(turn)
    assert (ended.status, ended.output_text, ended.attempt) == ("completed", "At last.", 1)


def test_a_refused_key_fails_the_turn_at_once_and_says_what_to_set(engine: Engine, server: MessagesServer) -> None:
    before = len(server.requests)
    server.then(failure(401, "authentication_error", "invalid x-api-key"))
    turn = engine.ended(engine.submit("refused", "hello"))
    assert (turn.status, turn.reason) == ("failed", "provider")
    assert turn.error is not None
    assert "ANTHROPIC_API_KEY" in turn.error["message"]
    assert len(server.requests) == before + 1


def test_a_session_goes_on_after_a_turn_that_failed(engine: Engine, server: MessagesServer) -> None:
    server.then(failure(400, "invalid_request_error", "no"))
    first, second = engine.submit("goes-on", "one"), engine.submit("goes-on", "two")
    assert (engine.ended(first).status, engine.ended(second).status) == ("failed", "completed")
    assert engine.turn(second).output_text == "echo: two"
