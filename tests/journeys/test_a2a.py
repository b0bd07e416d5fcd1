"""The official client of the Agent2Agent protocol, unchanged, against the whole of Loom."""

import httpx
import pytest
from a2a.types.a2a_pb2 import (
    GetTaskRequest,
    TaskState,
)

from tests.support.a2a_client import Heard, card_of, client_of, only, request, run
from tests.support.messages_server import MessagesServer, Say
from tests.support.system import System

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
