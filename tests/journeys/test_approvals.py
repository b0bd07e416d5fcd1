"""A person decides on tool calls; everything may die while the turn waits for that."""

import json

import pytest
import standardwebhooks

from tests.journeys.conftest import WEBHOOK_SECRET, paid
from tests.support.messages_server import MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.system import Json, System, leftovers
from tests.support.tool_wire import data, results
from tests.support.until import until
from tests.support.webhook_receiver import WebhookReceiver

pytestmark = [pytest.mark.journey, pytest.mark.takes(45)]


def asked(server: MessagesServer, system: System, session: str, **fields: object) -> str:
    """A turn that wants to pay and to count, and has counted; its id."""
    pays = WireCall("toolu_pay", "pay", {"amount": 70, "to": session})
    server.then(Say("I pay.", [pays, WireCall("toolu_count", "count", {"n": 1})]))
    turn_id = system.submit(session, "Pay them.", agent="payer", **fields)

    def waits() -> bool:
        turn = system.turn(turn_id)
        return bool(turn["status"] == "requires_action" and turn["tool_calls"][1]["status"] == "completed")

    until(waits, 20, "it waits for a person, and what needs nobody has run")
    return turn_id


def decide(system: System, turn_id: str, **body: object) -> Json:
    """Decide on its payment; the status of the answer, and its body."""
    answer = system.post(f"/v1/turns/{turn_id}/approvals/toolu_pay", body)
    told: Json = answer.json
    return {"http": answer.status, **told}


def read(server: MessagesServer, turn_id: str) -> str:
    """What the model read last of the payment."""
    return data(results(server.requests[-1])[0], turn_id)


@pytest.mark.heavy
def test_a_turn_that_waits_for_a_person_survives_the_death_of_every_process_and_pays_once(
    server: MessagesServer, system: System
) -> None:
    with WebhookReceiver() as receiver:
        turn_id = asked(server, system, "all-dead", webhook=receiver.url)
        (request,) = receiver.wait_for(1, timeout_s=60)
        body = standardwebhooks.Webhook(WEBHOOK_SECRET).verify(request.body, dict(request.headers))
        assert (body["type"], body["data"]["id"]) == ("turn.requires_action", turn_id)
        assert [call["approval"] for call in body["data"]["tool_calls"]] == ["waiting", None]
        # The result of the other call wakes the turn once more, and it parks again.
        until(lambda: system.holder(turn_id) is None, 20, "no worker holds it")

        for name in [name for name in system.children if name.startswith(("worker-", "valkey"))]:
            system.kill(name)
        system.kill_supervisor()
        until(lambda: not leftovers(system.home), 5, "nothing is left running")
        system.start()
        # A worker may look at it first, whether there is anything to be done.
        until(lambda: system.turn(turn_id)["status"] == "requires_action", 20, "it waits for a person again")
        assert paid(system, "all-dead") == []

        server.then(Say("Paid."))
        assert decide(system, turn_id, decision="approve")["http"] == 200
        turn = system.ended(turn_id)
        assert (turn["status"], turn["output_text"], turn["attempt"]) == ("completed", "Paid.", 1)
        assert turn["tool_calls"][0]["approval"] == "approved"
        assert paid(system, "all-dead") == [70]
        ended = receiver.wait_for(2, timeout_s=60)[1]
        assert json.loads(ended.body)["type"] == "turn.completed"

        refused = decide(system, turn_id, decision="reject")
        assert (refused["http"], refused["type"].rpartition("/")[2]) == (409, "already-decided")
        assert paid(system, "all-dead") == [70]


def test_whoever_decides_second_is_refused_while_the_turn_still_runs(server: MessagesServer, system: System) -> None:
    turn_id = asked(server, system, "twice")
    server.then(Say("Paid."))
    answers = [decide(system, turn_id, decision=decision)["http"] for decision in ("approve", "approve")]
    assert answers == [200, 409]
    assert system.ended(turn_id)["output_text"] == "Paid."
    assert paid(system, "twice") == [70]


def test_asking_for_the_agent_with_approvals_in_a_session_of_another_runs_nothing(
    server: MessagesServer, system: System
) -> None:
    server.then(Say("Hello."))
    system.ended(system.submit("of-default", "Hello?"))
    asked_before = len(server.requests)
    answer = system.post("/v1/sessions/of-default/turns", {"input": "Pay them.", "agent": "payer"})
    assert (answer.status, answer.json["type"]) == (422, "/problems/agent-mismatch")
    assert "'default'" in answer.json["detail"]
    assert len(system.get("/v1/sessions/of-default/turns").json["data"]) == 1
    assert len(server.requests) == asked_before


def test_the_command_lists_the_turns_that_wait_and_lets_one_go_on(server: MessagesServer, system: System) -> None:
    turn_id = asked(server, system, "command")
    server.then(Say("Paid."))

    def is_listed() -> bool:
        return turn_id in system.run("turns", "--status", "requires_action", "--url", system.url).stdout

    # The result of the other call wakes it once more: for a moment it may be in progress.
    until(is_listed, 20, "the turn is listed")
    done = system.run("turns", "approve", turn_id, "--url", system.url)
    assert (done.returncode, "toolu_pay: approved" in done.stdout) == (0, True), done.stderr
    assert system.ended(turn_id)["output_text"] == "Paid."
    assert paid(system, "command") == [70]


def test_of_a_rejected_call_the_model_reads_the_reason_and_nothing_is_paid(
    server: MessagesServer, system: System
) -> None:
    turn_id = asked(server, system, "rejected")
    server.then(Say("Not paid."))
    assert decide(system, turn_id, decision="reject", reason="Ask the customer first.")["http"] == 200
    turn = system.ended(turn_id)
    assert (turn["status"], turn["output_text"]) == ("completed", "Not paid.")
    assert (turn["tool_calls"][0]["status"], turn["tool_calls"][0]["approval"]) == ("denied", "rejected")
    assert "Ask the customer first." in read(server, turn_id)
    assert paid(system, "rejected") == []


def test_an_edited_call_runs_with_the_persons_arguments_if_the_tool_takes_them(
    server: MessagesServer, system: System
) -> None:
    turn_id = asked(server, system, "edited")
    server.then(Say("Paid less."))
    wrong = decide(system, turn_id, decision="edit", arguments={"amount": "all", "to": "edited"})
    assert wrong["http"] == 422
    assert decide(system, turn_id, decision="edit", arguments={"amount": 7, "to": "edited"})["http"] == 200
    turn = system.ended(turn_id)
    assert (turn["tool_calls"][0]["approval"], turn["tool_calls"][0]["arguments"]["amount"]) == ("edited", 7)
    assert "7 is paid to edited." in read(server, turn_id)
    assert paid(system, "edited") == [7]
