"""A worker is asked to stop while a turn streams."""

import threading

import pytest

from tests.support.engine import Engine
from tests.support.messages_server import Hang, MessagesServer, Say
from tests.support.messages_wire import answer, sse

pytestmark = [pytest.mark.integration, pytest.mark.heavy, pytest.mark.takes(12)]

BODY = sse(answer("said before the worker had to stop"))


def test_a_reply_that_ends_in_time_is_finished_by_the_worker_that_stops(engine: Engine, server: MessagesServer) -> None:
    release = threading.Event()
    server.then(Hang(release, BODY, after_bytes=len(BODY) // 2))
    turn = engine.submit("in-time", "hello")
    next(event for event in engine.events(turn) if event.type == "output_text.delta")
    worker = engine.workers["first"]
    worker.terminate()
    release.set()
    ended = engine.ended(turn)
    assert (ended.status, ended.output_text) == ("completed", "said before the worker had to stop")
    assert worker.wait(timeout=60) == 0
    assert engine.rows("SELECT fence, deaths FROM turns WHERE id = ?", turn.id) == [(1, 0)]


def test_a_reply_that_does_not_end_is_handed_over_uncharged_and_said_by_the_next_worker(
    engine: Engine, server: MessagesServer
) -> None:
    second = engine.start_worker("second")
    release = threading.Event()
    server.then(Hang(release, BODY, after_bytes=len(BODY) // 2), Say("Said by the next."))
    turn = engine.submit("handed-over", "hello")
    next(event for event in engine.events(turn) if event.type == "output_text.delta")
    second.terminate()
    engine.start_worker("third")
    assert second.wait(timeout=60) == 0
    ended = engine.ended(turn)
    release.set()
    assert (ended.status, ended.output_text, ended.attempt) == ("completed", "Said by the next.", 1)
    assert engine.rows("SELECT fence, deaths FROM turns WHERE id = ?", turn.id) == [(2, 0)]
    assert [message.chat.text for message in engine.messages("handed-over")] == ["hello", "Said by the next."]
