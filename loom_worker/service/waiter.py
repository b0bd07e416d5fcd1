"""Waiting for the end of what clients submit, and reading its events while it runs; no database connection is held."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from loom_worker.core.errors import LoomError
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.tenants import Tenant
from loom_worker.events.log import EventLog
from loom_worker.service.end_waits import EndWait
from loom_worker.service.event_source import Place
from loom_worker.service.followed import EventBatch, EventSink, FollowedReader, FollowedStatuses, ReadableEvents
from loom_worker.service.turn_follower import TurnFollower

CHECK_S = 0.25
"""How often one who waits in a thread of its own checks whether to stop."""
QUEUED_BATCHES = 4
"""Of events that are kept for one who reads in a thread of its own."""


class Awaited(Protocol):
    """What is waited for: a turn, or a run."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def status(self) -> str:
        """As of a turn."""

    @property
    def is_finished(self) -> bool:
        """True once the status is final."""

    def as_json(self) -> Json:
        """As the HTTP API shows it."""


A = TypeVar("A", bound=Awaited)
Found_co = TypeVar("Found_co", covariant=True)
Read_contra = TypeVar("Read_contra", contravariant=True)


class AwaitedRows(Protocol[Found_co]):
    """Where it is looked up (``store/turns.py``: Turns, ``store/runs.py``: Runs)."""

    def get(self, tenant: Tenant, awaited_id: str, /) -> Found_co:
        """It, or NotFound."""


class WaitTexts(Protocol[A]):
    """Adds what an unfinished one waits for (``WaitReports``, ``RunWaits``)."""

    def with_wait(self, awaited: A, /) -> A:
        """The same, with what it waits for."""

    def in_words(self, awaited: A, /) -> str:
        """What it waits for, for people who look on; empty if that is nothing, or not known."""


class EventPlaces(ReadableEvents, Protocol[Read_contra]):
    """Where events are read (``service/event_source.py``: EventSource, ``service/run_events.py``: RunEventSource)."""

    def begin(self, tenant: Tenant, awaited: Read_contra, /, *, after: int) -> tuple[Place, tuple[Event, ...]]:
        """A reader's place behind an id, and what it is told before anything else."""


class Waiter(Generic[A]):
    """Waits for ends, and reads events, for clients."""

    def __init__(
        self,
        rows: AwaitedRows[A],
        source: EventPlaces[A],
        statuses: FollowedStatuses,
        events: EventLog,
        waits: WaitTexts[A],
    ) -> None:
        """Args: events: by which news come."""
        self._rows = rows
        self._source = source
        self._texts = waits
        self._follower = TurnFollower(source, statuses, events)

    @property
    def count(self) -> int:
        """How many are followed for now, without a thread of their own or with one."""
        return self._follower.count

    def look(self, tenant: Tenant, awaited_id: str) -> A:
        """It, as its row says, for one who will wait for it: without what an unfinished one waits for.

        Raises:
            NotFound: the tenant has none of that id.
        """
        return self._rows.get(tenant, awaited_id)

    def with_wait(self, awaited: A) -> A:
        """The same, with what it waits for if it is unfinished."""
        return self._texts.with_wait(awaited)

    def in_words(self, place: Place) -> str:
        """What is waited for where somebody reads, for people; empty if nobody knows."""
        try:
            return self._texts.in_words(self._rows.get(place.tenant, place.turn_id))
        except LoomError:
            return ""

    def expect(self, awaited_id: str, *, since_s: float | None = None) -> EndWait:
        """A wait for its end that needs no thread, and hears of it from now on: look at it after this.

        Args:
            since_s: the wait hears of an end from this moment on, a second ago at the most, by ``time.monotonic``.
        """
        return self._follower.expect(awaited_id, since_s=since_s)

    def begin(self, tenant: Tenant, awaited: A, *, after: int) -> tuple[Place, tuple[Event, ...]]:
        """A reader's place behind an id, for ``follow``, and what it is told before anything else.

        Raises:
            NotFound: the tenant has none of that id.
        """
        return self._source.begin(tenant, awaited, after=after)

    def follow(self, place: Place, sink: EventSink) -> FollowedReader:
        """Read events without a thread: the sink gets those behind the place as they come, and is told of the end."""
        return self._follower.follow(place, sink)

    def resume(self, reader: FollowedReader) -> None:
        """A reader that had no room may have some now."""
        self._follower.resume(reader)

    def leave(self, reader: FollowedReader) -> None:
        """A reader wants no more; its sink is told of the end, if it was not told already."""
        self._follower.leave(reader)

    def wait(self, tenant: Tenant, awaited_id: str, *, timeout_s: float, is_stopping: Callable[[], bool]) -> A:
        """Wait in this thread: it, as soon as it has ended or asks for a person, or as it is after timeout_s.

        Raises:
            NotFound: the tenant has none of that id.
        """
        until_s = time.monotonic() + timeout_s
        expected = self.expect(awaited_id)
        try:
            while True:
                expected.renew()
                awaited = self._rows.get(tenant, awaited_id)
                if not must_wait(awaited) or time.monotonic() >= until_s or is_stopping():
                    return self.with_wait(awaited)
                listener = _Over()
                expected.begin(listener, until_s=until_s)
                while not listener.is_told.wait(CHECK_S) and not is_stopping():
                    pass
        finally:
            expected.close()

    def events(
        self, tenant: Tenant, awaited_id: str, *, after: int, is_stopping: Callable[[], bool]
    ) -> Iterator[Event | None]:
        """Read in this thread: events behind an id, as they come; None when nothing came for 5 s.

        Ends after a final one. A reader that is ahead of the log (it was lost, and rebuilt shorter) gets
        ``stream.reset`` and then all of it.

        Raises:
            NotFound: the tenant has none of that id.
        """
        place, first = self._source.begin(tenant, self._rows.get(tenant, awaited_id), after=after)
        yield from first
        sink = _QueueSink()
        reader = self._follower.follow(place, sink)
        try:
            while not is_stopping():
                found = sink.take()
                if found is None:
                    return
                if found:
                    self._follower.resume(reader)
                yield from found
        finally:
            self._follower.leave(reader)

    def drain(self) -> None:
        """Send all readers and waiters home, and every later one at once; cannot be undone."""
        self._follower.drain()

    def close(self) -> None:
        """Follow nothing any more."""
        self._follower.close()


def must_wait(awaited: Awaited) -> bool:
    """False for what has ended or asks for a person: who waits for it is answered."""
    return not awaited.is_finished and awaited.status != "requires_action"


class _Over:
    def __init__(self) -> None:
        self.is_told = threading.Event()

    def over(self) -> None:
        self.is_told.set()


class _Ended:
    def __init__(self, error: LoomError | None) -> None:
        self.error = error


class _QueueSink:
    """Where the events go of one who reads in a thread of its own; None stands for a heartbeat."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[list[Event | None] | _Ended] = queue.SimpleQueue()

    def take(self) -> list[Event | None] | None:
        """What comes within CHECK_S; None: nothing more will. Raises the error with which it ended."""
        try:
            found = self._given.get(timeout=CHECK_S)
        except queue.Empty:
            return []
        if not isinstance(found, _Ended):
            return found
        if found.error is not None:
            raise found.error
        return None

    def has_room(self) -> bool:
        return self._given.qsize() < QUEUED_BATCHES

    def is_barred(self) -> bool:
        return False

    def send(self, batch: EventBatch) -> None:
        self._given.put([*batch.events])

    def wait_words(self) -> str:
        return ""

    def send_heartbeat(self, words: str) -> None:
        self._given.put([None])

    def end(self, error: LoomError | None) -> None:
        self._given.put(_Ended(error))
