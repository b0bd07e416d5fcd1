"""How the model server answers, well and in every bad way."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.chaos.asyncio_http import LAST_CHUNK, Connection, chunk, head
from tests.chaos.model_log import Request
from tests.chaos.model_script import SaidReply, chance_of
from tests.support.messages_wire import error_event, sse

Json = dict[str, Any]
HANG_S = 60.0
"""A request that hangs is dropped after this; its client should long be gone."""
DRIP_S = 1.5
DRIP_PIECES = 40
HTML = b"<html><body><h1>It works!</h1></body></html>"
STREAM = head(200, {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"})


@dataclass(frozen=True)
class Saying:
    """A reply on its way out."""

    request: Request
    reply: SaidReply
    connection: Connection
    seed: int
    sse: Callable[[Iterable[Json]], bytes] = sse
    """Writes the events in the form in which they were asked for."""

    def begin(self) -> None:
        """The head of a stream."""
        self.request.status = 200
        self.connection.send(STREAM)

    def part(self, data: bytes) -> None:
        """A piece of a stream that has begun."""
        self.connection.send(chunk(data))

    def refuse(self, status: int, kind: str, headers: Mapping[str, str] | None = None) -> None:
        """An error in the API's own shape."""
        self.request.status = status
        refuse(self.connection, status, kind, headers=headers)

    def pick(self, most: int) -> int:
        """A number from 1 to most, by seed, mark and n."""
        return chance_of(self.seed, f"{self.request.mark}/{self.request.fault}", self.request.nth).randint(1, most)


def refuse(
    connection: Connection, status: int, kind: str, *, message: str = "no", headers: Mapping[str, str] | None = None
) -> None:
    """An error in the API's own shape, on a connection."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_chaos"}
    connection.whole(status, json.dumps(body).encode(), headers)


async def whole(saying: Saying) -> None:
    """A correct reply, in one piece."""
    if saying.connection.gone_s is None:
        saying.request.status = 200
        saying.request.is_whole_at(time.time())
        saying.connection.send(STREAM + chunk(saying.sse(saying.reply.events)) + LAST_CHUNK)


async def drip(saying: Saying, *, over_s: float = DRIP_S, pieces: int = DRIP_PIECES) -> None:
    """A correct reply in small pieces over some time; the first comes at once."""
    body = saying.sse(saying.reply.events)
    size = len(body) // pieces + 1
    saying.begin()
    for start in range(0, len(body), size):
        if start:
            await asyncio.sleep(over_s / pieces)
        is_last = start + size >= len(body)
        if is_last:
            saying.request.is_whole_at(time.time())
        saying.connection.send(chunk(body[start : start + size]) + (LAST_CHUNK if is_last else b""))


async def hang(saying: Saying) -> None:
    """Nothing at all."""
    await asyncio.sleep(HANG_S)
    saying.connection.close()


async def reset(saying: Saying) -> None:
    """RST: in place of an answer, or in the middle of one."""
    if saying.pick(2) == 2:
        saying.begin()
        saying.part(saying.sse(saying.reply.events[:4]))
        await asyncio.sleep(0.01)
    saying.connection.reset()


async def cut(saying: Saying) -> None:
    """The connection ends within the stream, before its last byte."""
    body = saying.sse(saying.reply.events)
    saying.begin()
    saying.part(body[: saying.pick(len(body) - 1)])
    saying.connection.close()


async def early_end(saying: Saying) -> None:
    """The response is whole, the message is not: it lacks its stop reason."""
    saying.begin()
    saying.part(saying.sse(saying.reply.events[:-2]))
    saying.connection.send(LAST_CHUNK)


async def error_in_stream(saying: Saying) -> None:
    """Status 200, some words, and then an error event."""
    saying.begin()
    saying.part(saying.sse([*saying.reply.events[:5], error_event("overloaded_error")]))
    saying.connection.send(LAST_CHUNK)


async def garbage(saying: Saying) -> None:
    """Status 200 with a page of somebody else's."""
    saying.request.status = 200
    saying.connection.whole(200, HTML, {"content-type": "text/html"})


async def rate429(saying: Saying) -> None:
    """Too many requests, for a second."""
    saying.refuse(429, "rate_limit_error", {"retry-after": "1"})


async def rate429_absurd(saying: Saying) -> None:
    """Too many requests, for fifty days."""
    saying.refuse(429, "rate_limit_error", {"retry-after": "4294967"})


async def overloaded529(saying: Saying) -> None:
    """The API's own status for overload."""
    saying.refuse(529, "overloaded_error")


async def unavailable503(saying: Saying) -> None:
    """A gateway whose servers are down."""
    saying.refuse(503, "api_error")


async def closed(saying: Saying) -> None:
    """The connection ends without a word."""
    saying.connection.close()


async def server500(saying: Saying) -> None:
    """An error of the provider's."""
    saying.refuse(500, "api_error")


RESPOND: dict[str, Callable[[Saying], Awaitable[None]]] = {
    "": whole,
    "rate429": rate429,
    "rate429_absurd": rate429_absurd,
    "overloaded529": overloaded529,
    "unavailable503": unavailable503,
    "closed": closed,
    "server500": server500,
    "hang": hang,
    "drip": drip,
    "reset": reset,
    "cut": cut,
    "early_end": early_end,
    "error_event": error_in_stream,
    "garbage": garbage,
    "bad_tool_json": whole,
    "unknown_tool": whole,
    "fifty_calls": whole,
}
"""Every fault; the last three are in what is said, not in how."""
