"""Waits and reads as the web does: coroutines on a loop that runs in a thread of its own."""

import asyncio
import math
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from loom_worker.core.values.notifications import Event
from loom_worker.core.values.tenants import Tenant
from loom_worker.service.waiting.readers import EventBatch
from loom_worker.service.waiting.sources import Awaited
from loom_worker.service.waiting.waiter import Waiter
from tests.support.until import until

T = TypeVar("T")
A = TypeVar("A", bound=Awaited)


class LoopThread:
    """The loop, for ``with``; what still runs in the end is cancelled."""

    def __enter__(self) -> Self:
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="test-loop")
        self._thread.start()
        self._has_begun.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run it beside the others."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = 60.0) -> T:
        """Run it, and return what it returns."""
        return self.start(work).result(timeout_s)

    async def _run(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        self._has_begun.set()
        await self._is_over.wait()


class Taken:
    """Takes events; has room for as many batches, and wants as many events, as it is told."""

    def __init__(self, room: float = math.inf, most: float = math.inf) -> None:
        self.events: list[Event] = []
        self.most = most
        self.room = room
        self.is_key_ended = False
        self.waits: list[str] = []

    @property
    def is_over(self) -> bool:
        return len(self.events) >= self.most

    @property
    def has_room(self) -> bool:
        return self.room > 0

    async def taken(self) -> None:
        while not self.has_room:
            await asyncio.sleep(0.01)

    def is_barred(self) -> bool:
        return self.is_key_ended

    def framed(self, batch: EventBatch) -> bytes:
        self.room -= 1
        self.events += batch.events
        return b"some"

    def send(self, data: bytes) -> None:
        pass

    def send_heartbeat(self, words: str) -> None:
        self.waits.append(words)

    def texts(self) -> list[Any]:
        return [event.data.get("text") for event in self.events if event.type == "x"]


@dataclass(frozen=True)
class Clients:
    """Who waits and reads; what has not ended with the loop is cancelled."""

    loop: LoopThread

    def wait(self, waiter: Waiter[A], tenant: Tenant, awaited_id: str, *, timeout_s: float = 60) -> "Future[A]":
        """It, once it has ended or asks for a person, or as it is after that time or where all are sent home."""
        until_s = time.monotonic() + timeout_s

        async def wait() -> A:
            while True:
                since_s = time.monotonic()
                found = await asyncio.to_thread(waiter.source.look, tenant, awaited_id)
                is_over = found.is_finished or found.status == "requires_action" or time.monotonic() >= until_s
                if is_over or waiter.is_draining:
                    return found
                await waiter.ended(awaited_id, since_s=since_s, until_s=until_s)

        return self.loop.start(wait())

    def events(self, waiter: Waiter[A], tenant: Tenant, awaited_id: str, *, after: int = 0) -> Iterator[Event]:
        """Its events as they come, to the last one."""
        sink = Taken()
        place, first = waiter.source.begin(tenant, waiter.source.look(tenant, awaited_id), after=after)
        reading = self.loop.start(waiter.follow(place, sink))
        return self._given(sink, reading, first)

    def _given(self, sink: Taken, reading: "Future[None]", first: tuple[Event, ...]) -> Iterator[Event]:
        yield from first
        given = [0]
        while True:
            until(lambda: len(sink.events) > given[0] or reading.done(), 60, "there is an event, or the end")
            if given[0] == len(sink.events):
                return reading.result()
            yield sink.events[given[0]]
            given[0] += 1
