"""Flower shows each turn, tool call, judge and delivery with its own outcome, and nothing that a user wrote."""

import threading
from collections.abc import Iterator

import pytest

from tests.journeys.conftest import paid
from tests.journeys.test_workflows import ended as run_ended
from tests.journeys.test_workflows import offered, started
from tests.support.flower_client import FlowerClient, Json
from tests.support.messages_server import Hang, MessagesServer, Say, failure
from tests.support.messages_wire import WireCall, answer, sse
from tests.support.system import System
from tests.support.until import until
from tests.support.webhook_receiver import Answer, WebhookReceiver

pytestmark = [pytest.mark.journey, pytest.mark.takes(30)]

SECRET = "chrysanthemum"
"""Stands in all that users, models and tools of these tests say."""
HALF = sse(answer("the first half and the second half"))


@pytest.fixture
def flower(system: System) -> Iterator[FlowerClient]:
    with FlowerClient.of(system.state["flower_url"], system.home) as client:
        yield client


def shown(flower: FlowerClient, task_id: str, *states: str) -> Json:
    """A task once Flower shows it in one of these states, by default a final one."""
    task = until(lambda: flower.task(task_id, *states), 20, f"Flower shows {task_id}")
    assert task is not None
    return task


def call_of(flower: FlowerClient, turn_id: str) -> Json:
    """The one tool call of a turn, once it has ended."""

    def ended() -> Json | None:
        found = flower.parts_of(turn_id, "loom.tool.call")
        return found[0] if [task["state"] for task in found if task["state"] != "STARTED"] else None

    task = until(ended, 20, "Flower shows the call")
    assert task is not None
    return task


def test_a_completed_turn_is_a_success_with_its_ids_and_its_own_times(
    server: MessagesServer, system: System, flower: FlowerClient
) -> None:
    server.then(Say("", [WireCall("toolu_count", "count", {"n": 1})]), Say(f"Two, {SECRET}."))
    turn = system.ended(system.submit("flower-good", f"Count, {SECRET}.", agent="payer"))
    task = shown(flower, turn["id"])
    assert (task["name"], task["state"], task["result"]) == ("loom.turn.run", "SUCCESS", "completed")
    assert task["args"] == repr((turn["id"], "flower-good"))
    assert task["runtime"] * 1000 == pytest.approx(turn["timings"]["run_ms"])
    assert task["started"] - task["received"] == pytest.approx(turn["timings"]["queued_ms"] / 1000, abs=0.002)
    call = call_of(flower, turn["id"])
    assert (call["state"], call["result"], call["kwargs"]) == ("SUCCESS", "completed", "{'tool': 'count'}")
    assert call["args"] == repr((turn["id"], "flower-good", "toolu_count"))
    assert call["uuid"] in flower.page(f"/task/{turn['id']}")


def test_a_turn_that_its_provider_refuses_is_a_failure_with_the_reason(
    server: MessagesServer, system: System, flower: FlowerClient
) -> None:
    server.then(failure(403, "permission_error", f"not with this {SECRET}"))
    turn = system.ended(system.submit("flower-refused", f"May I, {SECRET}?"))
    task = shown(flower, turn["id"])
    assert (task["state"], task["result"]) == ("FAILURE", None)
    assert task["exception"] == f"failed: provider ({turn['error']['error_id']})"
    assert "failed: provider" in flower.page(f"/task/{turn['id']}")
    assert "badge text-bg-danger" in flower.page(f"/task/{turn['id']}")


def test_a_turn_without_budget_is_a_failure(server: MessagesServer, system: System, flower: FlowerClient) -> None:
    server.then(Say("", [WireCall("toolu_count", "count", {"n": 1})]))
    turn = system.ended(system.submit("flower-poor", f"Tell me, {SECRET}.", agent="payer", budget={"tool_calls": 0}))
    assert turn["status"] == "incomplete"
    task = shown(flower, turn["id"])
    assert (task["state"], task["exception"]) == ("FAILURE", "incomplete: budget")


def test_a_turn_that_waits_for_a_person_is_no_success_and_stays_the_same_task(
    server: MessagesServer, system: System, flower: FlowerClient
) -> None:
    server.then(Say("", [WireCall("toolu_pay", "pay", {"amount": 7, "to": SECRET})]), Say("Paid."))
    turn_id = system.submit("flower-asks", f"Pay {SECRET}.", agent="payer")
    until(lambda: system.turn(turn_id)["status"] == "requires_action", 20, "it waits")
    waits = shown(flower, turn_id, "RETRY")
    assert (waits["result"], waits["exception"]) == ("waits for a person", None)
    assert system.post(f"/v1/turns/{turn_id}/approvals/toolu_pay", {"decision": "approve"}).status == 200
    system.ended(turn_id)
    task = shown(flower, turn_id)
    assert (task["state"], task["result"], task["started"]) == ("SUCCESS", "completed", waits["started"])
    assert paid(system, "flower-asks") == [7]
    assert call_of(flower, turn_id)["state"] == "SUCCESS"


def test_a_cancelled_turn_is_revoked(server: MessagesServer, system: System, flower: FlowerClient) -> None:
    server.then(Hang(threading.Event(), HALF, after_bytes=len(HALF) // 2))
    turn_id = system.submit("flower-stop", f"What is it, {SECRET}?")
    shown(flower, turn_id, "STARTED")
    assert system.post(f"/v1/turns/{turn_id}/cancel").status == 202
    system.ended(turn_id)
    task = shown(flower, turn_id)
    assert (task["state"], task["result"]) == ("REVOKED", "cancelled: interrupt")


@pytest.mark.parametrize(
    ("decision", "state", "words", "of_stage"),
    [
        ("approve", "SUCCESS", {"result": "completed"}, {"state": "SUCCESS", "result": "completed"}),
        ("reject", "FAILURE", {"exception": "failed: rejected"}, {"state": "FAILURE", "exception": "failed: rejected"}),
    ],
)
def test_a_run_waits_for_a_person_and_ends_as_the_person_says_and_so_does_its_stage(
    *,
    server: MessagesServer,
    system: System,
    flower: FlowerClient,
    decision: str,
    state: str,
    words: Json,
    of_stage: Json,
) -> None:
    gated = {"agent_id": "maker", "prompt_template": "Write", "approval": {"prompt": f"{SECRET}? {{{{output}}}}"}}
    name = offered(system, "flower-gated", {"type": "pipeline", "initial_prompt": "{{input}}", "stages": [gated]})
    server.then(Say(f"A {SECRET}."))
    run_id = started(system, name, input=SECRET)
    waits = shown(flower, run_id, "RETRY")
    assert (waits["name"], waits["args"]) == ("loom.workflow.run", repr((run_id, name)))
    assert waits["result"] == "waits for a person"
    said = {"decision": decision, "reason": SECRET}
    assert system.post(f"/v1/runs/{run_id}/approvals/stages.0", said).status == 200
    [stage] = [each for each in run_ended(system, run_id)["stages"] if each["role"] == "stage"]
    run = shown(flower, run_id)
    assert {"state": run["state"], **{key: run[key] for key in words}} == {"state": state, **words}
    turn = until(lambda: flower.task(stage["turn_id"], of_stage["state"]), 20, "Flower shows the stage's end")
    assert turn is not None
    assert {key: turn[key] for key in of_stage} == of_stage
    assert (turn["parent"], turn["args"]) == (run_id, repr((stage["turn_id"], stage["session_id"])))
    assert SECRET not in flower.page("/api/tasks")


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [("broken", {}, "failed"), ("count", {"n": -1}, "failed: INVALID_INPUT"), (SECRET, {}, "failed")],
)
def test_a_tool_call_that_fails_is_a_failure_of_its_own(
    server: MessagesServer, system: System, flower: FlowerClient, name: str, arguments: Json, why: str
) -> None:
    server.then(Say("", [WireCall("toolu_1", name, arguments)]), Say("It did not work."))
    turn = system.ended(system.submit(f"flower-{len(name)}", f"Try {SECRET}.", agent="payer"))
    assert turn["tool_calls"][0]["status"] == "failed"
    call = call_of(flower, turn["id"])
    assert (call["state"], call["exception"], call["result"]) == ("FAILURE", why, None)
    assert shown(flower, turn["id"])["state"] == "SUCCESS"


def test_each_attempt_at_a_delivery_is_a_task_with_its_own_outcome(
    server: MessagesServer, system: System, flower: FlowerClient
) -> None:
    with WebhookReceiver() as receiver:
        receiver.answer_with(Answer(status=503, body=SECRET.encode()), Answer())
        server.then(Say("Told."))
        turn_id = system.submit("flower-told", "hello", webhook=f"{receiver.url}/{SECRET}")

        def attempts(state: str) -> list[Json]:
            found = flower.parts_of(turn_id, "loom.webhook.deliver")
            return found if [task["state"] for task in found].count(state) == 1 else []

        [failed] = until(lambda: attempts("FAILURE"), 20, "Flower shows the first attempt")
        delivery_id = failed["uuid"].partition(":")[0]
        assert system.post(f"/v1/deliveries/{delivery_id}/replay").status in (200, 202)
        tasks = until(lambda: attempts("SUCCESS"), 20, "Flower shows the second attempt")
        first, second = sorted(tasks, key=lambda task: str(task["uuid"]))
    assert (first["state"], first["exception"]) == ("FAILURE", "HTTP 503; tried again later")
    assert (second["state"], second["result"]) == ("SUCCESS", "HTTP 200")
    assert turn_id in first["args"]


@pytest.mark.heavy
@pytest.mark.parametrize("max_attempts", [3, 2], ids=["another worker", "a process of its own"])
def test_a_turn_whose_worker_is_killed_goes_on_as_the_same_task_elsewhere(
    server: MessagesServer, system: System, flower: FlowerClient, max_attempts: int
) -> None:
    server.then(Hang(threading.Event(), HALF, after_bytes=0), Say("At last."))
    turn_id = system.submit(f"flower-killed-{max_attempts}", f"hello {SECRET}", max_attempts=max_attempts)
    started = shown(flower, turn_id, "STARTED")
    name = until(lambda: system.holder(turn_id), 10, "somebody runs it")
    assert name is not None
    system.kill(name)
    assert system.ended(turn_id)["output_text"] == "At last."
    task = shown(flower, turn_id)
    assert (task["state"], task["started"], task["received"]) == ("SUCCESS", started["started"], started["received"])
    assert task["worker"].partition("@")[0] in system.children


@pytest.mark.heavy
def test_a_turn_that_kills_its_workers_is_a_failure_that_says_so(
    server: MessagesServer, system: System, flower: FlowerClient
) -> None:
    server.then(Hang(threading.Event(), HALF, after_bytes=0))
    turn_id = system.submit("flower-dead", f"hello {SECRET}", max_attempts=1)
    name = until(lambda: system.holder(turn_id), 10, "somebody runs it")
    assert name is not None
    system.kill(name)
    assert system.ended(turn_id)["reason"] == "dead"
    assert shown(flower, turn_id)["exception"].startswith("failed: dead")


def test_nothing_that_a_user_a_model_or_a_tool_wrote_stands_in_flower(
    server: MessagesServer, system: System, flower: FlowerClient
) -> None:
    server.then(Say("", [WireCall("toolu_1", "connect", {"shop": SECRET})]), Say(f"No {SECRET}."))
    turn_id = system.submit("flower-hush", f"Ask {SECRET}.", agent="payer", metadata={"for": SECRET})
    system.ended(turn_id)
    shown(flower, turn_id)
    tasks = flower.tasks()
    workers = sorted({task["worker"] for task in tasks.values()})
    table = "/tasks/datatable?draw=1&start=0&length=1000&order[0][column]=0&columns[0][data]=name"
    paths = ["/", "/tasks", "/broker", "/metrics", "/api/tasks", "/api/workers", table]
    paths += [f"/worker/{name}" for name in workers] + [f"/task/{each}" for each in tasks]
    for path in paths:
        assert SECRET not in flower.page(path), path
    assert turn_id in flower.page(table)
    assert len(workers) >= 2


def test_no_message_is_shown_as_a_task_and_no_lane_anywhere(
    server: MessagesServer, system: System, flower: FlowerClient
) -> None:
    server.then(Say("", [WireCall(f"toolu_{n}", "count", {"n": n}) for n in range(3)]), Say("One, two, three."))
    turn_id = system.ended(system.submit("flower-few", "Count.", agent="payer"))["id"]
    shown(flower, turn_id)

    def ended() -> list[Json]:
        found = [task for task in flower.tasks().values() if turn_id in task["args"]]
        return found if len(found) >= 4 and {task["state"] for task in found} == {"SUCCESS"} else []

    # Each worker reports in its own time: the turn's end may come before that of its calls.
    tasks = until(ended, 20, "Flower shows the turn and its calls")
    assert sorted(task["name"] for task in tasks) == [*["loom.tool.call"] * 3, "loom.turn.run"]
    lanes = [lane for (lane,) in system.rows("SELECT lane FROM sessions")]
    listed = flower.page("/api/tasks")
    assert [lane for lane in lanes if lane in listed.replace("summary:" + lane, "")] == []
