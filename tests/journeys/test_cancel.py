"""A client cancels what runs: the stream stops within a second, and the conversation goes on."""

import threading

import pytest

from tests.support.messages_server import Hang, MessagesServer, Say, failure
from tests.support.messages_wire import answer, sse
from tests.support.system import Json, System
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.takes(8)]

HALF = sse(answer("the first half and the second half"))


def streaming(server: MessagesServer, system: System, session: str) -> str:
    """A turn whose model has said half of its answer and then nothing."""
    server.then(Hang(threading.Event(), HALF, after_bytes=len(HALF) // 2))
    turn_id = system.submit(session, "What is it?")
    next(event for event in system.events(turn_id) if event.type == "output_text.delta")
    return turn_id


def cancelled(system: System, turn_id: str, action: str | None = None) -> Json:
    """The turn once it has ended, which without the cancel its silent model would keep it from."""
    answer = system.post(f"/v1/turns/{turn_id}/cancel", {"action": action} if action else {})
    assert (answer.status, answer.json["status"]) == (202, "in_progress")
    return system.ended(turn_id)


def test_an_interrupt_stops_a_silent_stream_and_the_conversation_goes_on(
    server: MessagesServer, system: System
) -> None:
    turn = cancelled(system, streaming(server, system, "stop"))
    assert (turn["status"], turn["reason"]) == ("cancelled", "interrupt")
    assert turn["output_text"]
    assert "the first half and the second half".startswith(turn["output_text"])
    server.then(Say("Go on."))
    assert system.ended(system.submit("stop", "And now?"))["output_text"] == "Go on."
    sent = server.requests[-1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"][0]["text"] == turn["output_text"]


def test_a_rollback_leaves_nothing_in_the_conversation(server: MessagesServer, system: System) -> None:
    turn = cancelled(system, streaming(server, system, "undo"), "rollback")
    assert (turn["status"], turn["output_text"], system.messages("undo")) == ("cancelled", None, [])
    assert turn["usage"]["llm_calls"] == 1


def test_a_message_that_interrupts_is_answered_at_once(server: MessagesServer, system: System) -> None:
    turn_id = streaming(server, system, "again")
    server.then(Say("Better."))
    newer = system.ended(system.submit("again", "No, rather this.", double_texting="interrupt"))
    assert newer["output_text"] == "Better."
    assert system.turn(turn_id)["status"] == "cancelled"


def test_a_turn_that_waits_for_a_busy_provider_is_cancelled_without_waiting(
    server: MessagesServer, system: System
) -> None:
    server.then(failure(429, "rate_limit_error", headers={"retry-after": "3600"}))
    turn_id = system.submit("busy", "Are you there?")
    until(lambda: system.turn(turn_id)["waiting"]["for"] == "rate_limit", 20, "it waits for its provider")
    until(lambda: system.holder(turn_id) is None, 20, "no worker holds it")
    assert cancelled(system, turn_id)["status"] == "cancelled"


def test_a_failed_turn_is_answered_when_it_is_retried(server: MessagesServer, system: System) -> None:
    server.then(failure(403, "permission_error"), Say("Allowed."))
    failed = system.ended(system.submit("retry", "May I?"))
    assert failed["status"] == "failed"
    answer = system.post(f"/v1/turns/{failed['id']}/retry")
    assert (answer.status, answer.json["retry_of"]) == (202, failed["id"])
    assert system.ended(answer.json["id"])["output_text"] == "Allowed."
