"""Requests that go on without a thread: how a view leaves its own, and what its coroutine may do."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from flask import request

T = TypeVar("T")

DETACH = "loom.detach"
"""The key of WSGI's environ under which a view finds how to leave its thread; other servers than ours have none."""
AHEAD_BYTES = 64 * 1024
"""A client that has not taken so many bytes of its answer is sent nothing for now."""


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """An answer that was not known when the view returned; the headers that the view gave it are kept."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchange(Protocol):
    """A request that goes on without a thread; everything here is for the loop's thread."""

    def send(self, data: bytes) -> None:
        """Send a piece of the answer, without blocking; nothing happens once the client has gone."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of the answer that the client has not taken yet."""

    async def taken(self) -> None:
        """Return once fewer than AHEAD_BYTES wait to be taken, or the client has gone."""

    async def left(self) -> None:
        """Return once the client has gone, or says no more; in the latter case it still gets its answer."""

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run what may block as views are run: in a thread, few at a time."""


GoesOn = Callable[[Exchange], Awaitable[FinalAnswer | None]]
"""How a request goes on; None: it was sent everything. It must return soon after ``left`` has; if the server stops, it
is cancelled."""


def can_detach() -> bool:
    """True if the current request can go on without a thread."""
    return DETACH in request.environ


def detach(goes_on: GoesOn, *, holds_answer: bool) -> None:
    """Let the current request go on without its thread once the view has returned.

    Args:
        holds_answer: what the view returned is not sent; its headers are, with the final answer.
    """
    request.environ[DETACH](goes_on, holds_answer)


async def until_left(exchange: Exchange, work: Coroutine[Any, Any, None]) -> bool:
    """Do it to its end, and return True; False once the client has gone, or says no more: it is cancelled then."""
    tasks = doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(exchange.left())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
        return not leaving.done()
    finally:
        for each in tasks:
            each.cancel()
