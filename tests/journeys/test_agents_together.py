"""Agents that ask each other, over the whole system: real workers that are killed while one waits for the other."""

import threading

import pytest

from tests.support.messages_server import Hang, MessagesServer, Say
from tests.support.messages_wire import WireCall, answer, sse
from tests.support.system import Json, System
from tests.support.tool_wire import results
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.takes(20)]


def child_of(system: System, turn_id: str) -> Json:
    """The turn that a turn's only call waits for, once it is accepted."""

    def look() -> str | None:
        called = system.turn(turn_id)["tool_calls"]
        return called[0]["child_turn_id"] if called else None

    return system.turn(str(until(look, 20, "the other agent is asked")))


def test_a_task_survives_the_death_of_the_worker_that_does_it_while_its_asker_holds_none(
    server: MessagesServer, system: System
) -> None:
    release = threading.Event()
    half = sse(answer("The first half and the second half."))
    delegates = WireCall("toolu_1", "delegate", {"agent": "aide", "task": "Count the parcels."})
    server.then(Say("", [delegates]), Hang(release, half, after_bytes=len(half) // 2), Say("42"), Say("It is 42."))
    turn_id = system.submit("parcels", "How many parcels are there?", agent="lead")
    child = child_of(system, turn_id)
    holder = until(lambda: system.holder(child["id"]), 20, "the aide works")
    until(lambda: "Count the parcels" in str(server.requests[-1]["messages"][-1]), 20, "it asks its model")
    assert system.holder(turn_id) is None
    assert system.turn(turn_id)["waiting"]["for"] == "agents"
    system.kill(str(holder))
    release.set()

    turn = system.ended(turn_id)
    assert (turn["status"], turn["output_text"]) == ("completed", "It is 42.")
    assert [(call["status"], call["content"]) for call in turn["tool_calls"]] == [("completed", "42")]
    assert "42" in str(results(server.requests[-1]))
    listed = [each["id"] for each in system.get("/v1/turns").json["data"] if each["parent_turn_id"] == turn_id]
    assert listed == [child["id"]]
    spans = {span["name"]: span for span in system.get(f"/v1/turns/{child['id']}/trace").json["data"]}
    assert turn["trace_id"] == system.turn(child["id"])["trace_id"]
    assert spans


def test_a_cancelled_turn_cancels_the_work_it_waits_for(server: MessagesServer, system: System) -> None:
    release = threading.Event()
    whole = sse(answer("Never mind."))
    asks = WireCall("toolu_1", "ask_agent", {"agent": "aide", "message": "Think.", "reply_timeout_s": 300})
    server.then(Say("", [asks]), Hang(release, whole, after_bytes=len(whole) // 2))
    turn_id = system.submit("thinking", "Ask.", agent="lead")
    child = child_of(system, turn_id)
    until(lambda: system.holder(child["id"]), 20, "the aide works")
    assert system.post(f"/v1/turns/{turn_id}/cancel", {"action": "interrupt"}).status == 202
    assert system.ended(turn_id)["status"] == "cancelled"
    release.set()
    assert system.ended(child["id"])["status"] == "cancelled"


def test_an_agent_waits_for_a_message_that_another_one_sends(server: MessagesServer, system: System) -> None:
    waits = WireCall("toolu_1", "receive_messages", {"wait_s": 300})
    server.then(Say("", [waits]))
    reader = system.submit("inbox", "Any news?", agent="aide")
    until(lambda: system.turn(reader)["waiting"]["for"] == "agents", 20, "it waits")
    sends = WireCall("toolu_2", "send_agent", {"agent": "aide", "message": "The parcels are here."})
    server.then(Say("", [sends]), Say("One of the two."), Say("The other."))
    sender = system.submit("outbox", "Tell the aide.", agent="lead")
    assert system.ended(sender)["status"] == "completed"
    turn = system.ended(reader)
    assert turn["status"] == "completed"
    assert "The parcels are here." in turn["tool_calls"][0]["content"]
