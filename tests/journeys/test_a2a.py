"""The official client of the Agent2Agent protocol, unchanged, against the whole of Loom."""

import asyncio
import json
import threading
from pathlib import Path

import httpx
import pytest
from a2a.types.a2a_pb2 import (
    AuthenticationInfo,
    CancelTaskRequest,
    GetTaskRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from tests.support.a2a_client import Heard, card_of, client_of, only, request, run
from tests.support.agents import add
from tests.support.messages_server import Hang, MessagesServer, Say
from tests.support.messages_wire import WireCall, answer, sse
from tests.support.system import System, spoken
from tests.support.until import until
from tests.support.webhook_receiver import WebhookReceiver

pytestmark = [pytest.mark.journey, pytest.mark.takes(30)]
VERSIONS = ("1.0", "0.3")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_is_answered_blocking_streamed_and_in_the_same_context(
    server: MessagesServer, system: System, version: str
) -> None:
    server.then(Say("The first answer."), Say("The second answer."))

    async def talk(http: httpx.AsyncClient) -> tuple[str, Heard]:
        assert (await card_of(http, system.url)).name == "default"
        plain = await client_of(http, system.url, streaming=False, version=version)
        done = (await only(plain.send_message(request("One?", f"one-{version}")))).task
        assert done.status.state == TaskState.TASK_STATE_COMPLETED
        assert done.artifacts[0].parts[0].text == "The first answer."
        streaming, heard = await client_of(http, system.url, version=version), Heard()
        async for response in streaming.send_message(request("Two?", f"two-{version}", context_id=done.context_id)):
            heard.take(response)
        again = await streaming.get_task(GetTaskRequest(id=heard.task_id))
        assert again.artifacts[0].parts[0].text == heard.text
        assert [each.parts[0].text for each in again.history] == ["Two?"]
        return done.context_id, heard

    context_id, heard = run(talk)
    assert (heard.text, heard.is_last) == ("The second answer.", True)
    assert heard.states[0] == TaskState.TASK_STATE_SUBMITTED
    assert heard.states[-2:] == [TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED]
    said = [entry["content"] for entry in system.messages(context_id)]
    assert said == ["One?", "The first answer.", "Two?", "The second answer."]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_message_is_the_same_task_and_what_is_wrong_has_the_protocol_s_code(
    server: MessagesServer, system: System, version: str
) -> None:
    server.then(Say("Once."))

    async def talk(http: httpx.AsyncClient) -> set[str]:
        client = await client_of(http, system.url, streaming=False, version=version)
        sent = [
            (await only(client.send_message(request(f"Twice in {version}?", f"twice-{version}")))).task
            for _ in range(2)
        ]
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="turn_none"))
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=sent[0].id))
        with pytest.raises(UnsupportedOperationError):
            await only(client.send_message(request("More?", f"more-{version}", task_id=sent[0].id)))
        return {task.id for task in sent}

    assert len(run(talk)) == 1
    assert sum(f"Twice in {version}?" in str(asked["messages"][-1]) for asked in server.requests) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_task_that_asks_whether_a_tool_may_run_goes_on_when_it_is_told(
    server: MessagesServer, system: System, version: str
) -> None:
    server.then(Say("I pay.", [WireCall("toolu_pay", "pay", {"amount": 7, "to": version})]), Say("Paid."))

    async def talk(http: httpx.AsyncClient) -> list[Heard]:
        client, heard = await client_of(http, f"{system.url}/a2a/payer", version=version), [Heard(), Heard()]
        async for response in client.send_message(request("Pay.", f"pay-{version}")):
            heard[0].take(response)
        task = await client.get_task(GetTaskRequest(id=heard[0].task_id))
        asked = task.status.message.parts[1].data.struct_value["tool_calls"][0]
        assert (asked["tool_call_id"], asked["name"]) == ("toolu_pay", "pay")
        async for response in client.send_message(request("approve", f"yes-{version}", task_id=task.id)):
            heard[1].take(response)
        return heard

    first, second = run(talk)
    assert (first.states[-1], first.text) == (TaskState.TASK_STATE_INPUT_REQUIRED, "I pay.")
    assert (second.states[-1], second.text) == (TaskState.TASK_STATE_COMPLETED, "Paid.")
    assert second.task_id == first.task_id


def test_a_client_that_does_not_stream_waits_for_what_comes_of_its_decision(
    server: MessagesServer, system: System
) -> None:
    server.then(Say("I pay.", [WireCall("toolu_pay", "pay", {"amount": 8, "to": "wait"})]), Say("Not paid."))

    async def talk(http: httpx.AsyncClient) -> tuple[int, int, str]:
        client = await client_of(http, f"{system.url}/a2a/payer", streaming=False)
        asked = (await only(client.send_message(request("Pay.", "pay-wait")))).task
        done = (await only(client.send_message(request("deny", "no-wait", task_id=asked.id)))).task
        return asked.status.state, done.status.state, done.artifacts[0].parts[0].text

    asked, done, text = run(talk)
    assert (asked, done) == (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_COMPLETED)
    assert text == "Not paid."


@pytest.mark.parametrize("version", VERSIONS)
def test_a_push_notification_that_is_set_while_the_task_runs_is_sent_when_it_is_cancelled(
    server: MessagesServer, system: System, version: str
) -> None:
    release, whole = threading.Event(), sse(answer("never to its end"))
    server.then(Hang(release, whole, after_bytes=len(whole) // 2))

    async def talk(http: httpx.AsyncClient, url: str) -> str:
        client = await client_of(http, system.url, streaming=False, version=version)
        task = (await only(client.send_message(request("Long?", f"long-{version}", at_once=True)))).task
        await asyncio.to_thread(until, lambda: system.turn(task.id)["status"] == "in_progress", 20, "it runs")
        config = TaskPushNotificationConfig(
            task_id=task.id,
            id="mine",
            url=url,
            token="t0ken",
            authentication=AuthenticationInfo(scheme="Bearer", credentials="s3cret"),
        )
        assert (await client.create_task_push_notification_config(config)).id == "mine"
        done = await client.cancel_task(CancelTaskRequest(id=task.id))
        assert done.status.state == TaskState.TASK_STATE_CANCELED
        return str(task.id)

    with WebhookReceiver() as receiver:
        task_id = run(lambda http: talk(http, receiver.url))
        release.set()
        (told,) = receiver.wait_for(1, timeout_s=60)
    assert (told.headers["authorization"], told.headers["x-a2a-notification-token"]) == ("Bearer s3cret", "t0ken")
    body = json.loads(told.body)
    if version == "1.0":
        assert (body["task"]["id"], body["task"]["status"]["state"]) == (task_id, "TASK_STATE_CANCELED")
    else:
        assert (body["kind"], body["id"], body["status"]["state"]) == ("task", task_id, "canceled")


def test_a_stream_goes_on_and_the_answer_is_whole_though_the_worker_is_killed_meanwhile(
    server: MessagesServer, system: System
) -> None:
    release, half = threading.Event(), sse(answer("the first half and the second half"))
    server.then(Hang(release, half, after_bytes=len(half) // 2), Say("The whole answer."))

    async def talk(http: httpx.AsyncClient) -> tuple[Heard, Heard]:
        client, heard, later = await client_of(http, system.url), Heard(), Heard()
        async for response in client.send_message(request("What is it?", "killed")):
            heard.take(response)
            if response.HasField("artifact_update") and not release.is_set():
                await asyncio.to_thread(system.kill, str(system.holder(heard.task_id)))
                release.set()
                async for again in client.subscribe(SubscribeToTaskRequest(id=heard.task_id)):
                    later.take(again)
        return heard, later

    for heard in run(talk):
        assert (heard.text, heard.states[-1]) == ("The whole answer.", TaskState.TASK_STATE_COMPLETED)
        assert system.turn(heard.task_id)["attempt"] == 2


def test_an_agent_of_one_loom_is_answered_by_another_s_and_a_question_goes_through_both(
    server: MessagesServer, system: System
) -> None:
    """Both are of the same Loom here, which speaks to itself over HTTP."""
    folder = Path(system.environ["LOOM_AGENTS_DIR"])
    remote = {"url": f"{system.url}/a2a/payer", "allow_private": True}
    add(folder, "elsewhere", {"system_prompt": "", "a2a": remote})
    until(lambda: system.get("/v1/agents/elsewhere").status == 200, 20, "the agent is read")
    server.then(Say("I pay.", [WireCall("toolu_pay", "pay", {"amount": 9, "to": "far"})]), Say("Paid."))

    asked = system.ended(system.submit("far", "Pay far away.", agent="elsewhere"))
    assert asked["output_text"].startswith("I pay.\n\nMay the agent call pay?")
    done = system.ended(system.submit("far", "approve", agent="elsewhere"))
    assert (done["status"], done["output_text"]) == ("completed", "Paid.")
    turns = system.get("/v1/turns?limit=10").json["data"]
    task, _ = [turn for turn in turns if turn["input"] == "Pay far away."]  # the newest first
    assert task["tool_calls"][0]["status"] == "completed"
    assert done["usage"]["input_tokens"] == task["usage"]["input_tokens"]


@pytest.mark.heavy
def test_an_agent_elsewhere_is_asked_once_though_the_worker_that_asks_is_killed(
    server: MessagesServer, system: System
) -> None:
    folder = Path(system.environ["LOOM_AGENTS_DIR"])
    add(folder, "distant", {"system_prompt": "", "a2a": {"url": f"{system.url}/a2a/maker", "allow_private": True}})
    until(lambda: system.get("/v1/agents/distant").status == 200, 20, "the agent is read")
    release, whole = threading.Event(), sse(answer("asked but once"))
    server.then(Hang(release, whole, after_bytes=len(whole) // 2), Say("asked but once"))
    turn_id = system.submit("dist", "Far?", agent="distant")
    seen = system.events(turn_id)
    next(event for event in seen if event.type == "output_text.delta")
    system.kill(str(system.holder(turn_id)))
    release.set()
    turn = system.ended(turn_id)
    assert (turn["status"], turn["output_text"], turn["attempt"]) == ("completed", "asked but once", 2)
    tasks = [each for each in system.get("/v1/turns?limit=20").json["data"] if each["input"] == "Far?"]
    assert len(tasks) == 2
    assert spoken(list(system.events(turn_id))) == "asked but once"
