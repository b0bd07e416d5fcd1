"""Who reads the events of a turn or waits for its end: what each of them is given, and how far it is."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loom_worker.core.errors import LoomError
from loom_worker.core.values.notifications import Event
from loom_worker.service.waiting.sources import Place

log = logging.getLogger(__name__)


@dataclass(slots=True)
class EventBatch:
    """Events for one or more readers of a turn."""

    events: Sequence[Event]
    framed: bytes = b""
    """What the first of these readers made of them, for the others."""


class EventSink(Protocol):
    """Where a reader's events go; nothing raises, and only ``framed`` and ``is_barred`` are called by other threads."""

    @property
    def is_over(self) -> bool:
        """True once it wants no more."""

    @property
    def has_room(self) -> bool:
        """False while the reader is slow."""

    async def taken(self) -> None:
        """Return once there is room."""

    def is_barred(self) -> bool:
        """True once the reader may read no more, as its key has ended; asked once a second, where it may block."""

    def framed(self, batch: EventBatch) -> bytes:
        """The next events as they are sent."""

    def send(self, data: bytes) -> None:
        """Send what was framed."""

    def send_heartbeat(self, words: str) -> None:
        """Nothing has come for some time; the words say what is waited for, and are empty if nobody knows."""


@dataclass(eq=False, slots=True)
class Reader:
    """One who reads; its place is a thread's while it catches up, and otherwise the loop's."""

    place: Place
    sink: EventSink
    limit: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    error: LoomError | None = None
    """Why it was sent home."""
    _woken: asyncio.Future[None] | None = None

    @property
    def is_live(self) -> bool:
        """True while it has all there is, as far as is known, and is given what comes."""
        return self._woken is not None and not self._woken.done()

    @property
    def is_over(self) -> bool:
        """True once nothing more is to be given."""
        return self.place.is_over or self.sink.is_over

    def live(self) -> asyncio.Future[None]:
        """Be given what comes, until it must catch up by itself: the future is done then."""
        self._woken = asyncio.get_running_loop().create_future()
        return self._woken

    def wake(self) -> None:
        """Have it catch up."""
        if self._woken is not None:
            _settle(self._woken)

    def stop(self, error: LoomError | None = None) -> None:
        """Send it home, whatever it does."""
        if not self.limit.expired():
            self.error = error
            self.limit.reschedule(0)


@dataclass(eq=False, slots=True)
class Followed:
    """A turn or run with those who read its events or wait for its end."""

    readers: set[Reader] = field(default_factory=set)
    waits: set[asyncio.Future[None]] = field(default_factory=set)
    is_listened_to: bool = False
    news: int = 0
    """How often its log has changed."""
    quiet_looks: int = 0
    """Looks since its readers were given anything."""

    def live(self) -> list[Reader]:
        """Readers that are given what comes."""
        return [reader for reader in self.readers if reader.is_live and not reader.place.is_ahead_of_journal]

    def tell(self) -> None:
        for wait in self.waits:
            _settle(wait)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Ids:
    """Ids with which something is to be done as soon as it is not done with others."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._has_any = asyncio.Event()

    def add(self, *ids: str) -> None:
        self._ids.update(ids)
        if self._ids:
            self._has_any.set()

    async def each(self, work: Callable[[Collection[str]], Awaitable[None]]) -> None:
        """Do it, for ever; for one coroutine."""
        while True:
            await self._has_any.wait()
            self._has_any.clear()
            ids, self._ids = self._ids, set()
            try:
                await work(ids)
            except Exception:  # the top of a coroutine: nothing would be done for the others any more
                log.exception("%s failed, and goes on", getattr(work, "__name__", work))
