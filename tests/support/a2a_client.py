"""The official SDK of the Agent2Agent protocol, unchanged, as a program would use it against a Loom."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import (
    AgentCard,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
)

T = TypeVar("T")
TIMEOUT_S = 60.0


def run(work: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
    """Do something with one HTTP client, in an event loop of its own."""

    async def all_of_it() -> T:
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as http:
            return await work(http)

    return asyncio.run(all_of_it())


async def card_of(http: httpx.AsyncClient, url: str) -> AgentCard:
    return await A2ACardResolver(http, url).get_agent_card()


async def client_of(http: httpx.AsyncClient, url: str, *, streaming: bool = True, version: str = "1.0") -> Client:
    """A client of the agent whose card is below a URL, that speaks one of the card's versions."""
    card = await card_of(http, url)
    kept = [each for each in card.supported_interfaces if each.protocol_version == version]
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(kept)
    return ClientFactory(ClientConfig(streaming=streaming, httpx_client=http)).create(card)


def message(text: str, message_id: str, **fields: str) -> Message:
    return Message(message_id=message_id, role=Role.ROLE_USER, parts=[Part(text=text)], **fields)


def request(text: str, message_id: str, *, at_once: bool = False, **fields: str) -> SendMessageRequest:
    """Args: at_once: do not wait for the end."""
    configuration = SendMessageConfiguration(return_immediately=at_once)
    return SendMessageRequest(message=message(text, message_id, **fields), configuration=configuration)


async def only(stream: AsyncIterator[StreamResponse]) -> StreamResponse:
    """The one response of a call that does not stream."""
    [response] = [each async for each in stream]
    return response


class Heard:
    """What a reader of a stream has, put together as the protocol says."""

    def __init__(self) -> None:
        self.text = ""
        self.states: list[int] = []
        self.task_id = ""
        self.is_last = False

    def take(self, response: StreamResponse) -> None:
        match response.WhichOneof("payload"):
            case "task":
                self.task_id = response.task.id
                self.states.append(response.task.status.state)
            case "status_update":
                self.states.append(response.status_update.status.state)
            case "artifact_update":
                update = response.artifact_update
                said = "".join(part.text for part in update.artifact.parts)
                self.text = self.text + said if update.append else said
                self.is_last = update.last_chunk
