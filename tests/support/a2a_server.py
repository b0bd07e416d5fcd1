"""An agent that the official SDK of the Agent2Agent protocol serves, on loopback."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, TaskState
from starlette.applications import Starlette

from tests.support.until import until

WAIT_S = 20.0


class Parrot(AgentExecutor):
    """Says in pieces what it hears; some words have it do otherwise."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str]] = []
        """Of each message: its id, its context, its text."""
        self.cancelled = threading.Event()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text, message = context.get_user_input(), context.message
        assert message is not None
        self.heard.append((message.message_id, context.context_id or "", text))
        if text == "only a message":
            await event_queue.enqueue_event(new_text_message("No task, a message.", context_id=context.context_id))
            return
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        match text:
            case "ask me":
                await updater.requires_input(new_text_message("Which colour?"))
            case "fail":
                await updater.failed(new_text_message("I cannot."))
            case "hang":
                await updater.add_artifact([new_text_part("I begin")], artifact_id="a")
                await asyncio.sleep(WAIT_S)
            case _:
                await updater.add_artifact([new_text_part("You said: ")], artifact_id="a")
                await updater.add_artifact([new_text_part(text)], artifact_id="a", append=True, last_chunk=True)
                await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.cancelled.set()
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        await updater.update_status(TaskState.TASK_STATE_CANCELED)


@contextmanager
def parrot(*, streaming: bool = True, version: str = "1.0") -> Iterator[tuple[str, Parrot]]:
    """The URL of the agent, and it itself."""
    executor = Parrot()
    server = uvicorn.Server(uvicorn.Config(Starlette(), port=0, log_level="error", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started, WAIT_S, "the server listens")
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    card = AgentCard(
        name="parrot",
        description="Says what it hears",
        version="1",
        supported_interfaces=[AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version=version)],
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="parrot", name="Parrot", description="Repeats", tags=["test"])],
    )
    handler = DefaultRequestHandlerV2(executor, InMemoryTaskStore(), card)
    app: Any = server.config.app
    app.routes.extend(create_agent_card_routes(card))
    app.routes.extend(create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=version == "0.3"))
    try:
        yield url, executor
    finally:
        server.should_exit = server.force_exit = True
        thread.join(WAIT_S)
