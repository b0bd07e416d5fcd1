"""Waiting for the end of what clients submit, and reading its events while it runs: no thread and no row is held."""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from loom_worker.core.errors import LoomError
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.turns import Turn
from loom_worker.events.log import EventLog
from loom_worker.service.waiting.follower import FollowedStatuses, Follower
from loom_worker.service.waiting.reports import WaitReports
from loom_worker.service.waiting.sources import EventSource, Place, ReadableEvents
from loom_worker.store.turns import Turns, TurnStatuses


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
A_co = TypeVar("A_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)


class AwaitedRows(Protocol[A_co]):
    """Where it is looked up (``store/turns.py``: Turns, ``store/runs.py``: Runs)."""

    def get(self, tenant: Tenant, awaited_id: str, /) -> A_co:
        """It, or NotFound."""


class WaitTexts(Protocol[A]):
    """Adds what an unfinished one waits for (``WaitReports``, ``RunWaits``)."""

    def with_wait(self, awaited: A, /) -> A:
        """The same, with what it waits for."""

    def in_words(self, awaited: A, /) -> str:
        """What it waits for, for people who look on; empty if that is nothing, or not known."""


class EventPlaces(ReadableEvents, Protocol[A_contra]):
    """Where events are read (``EventSource``, ``RunEventSource``)."""

    def begin(self, tenant: Tenant, awaited: A_contra, /, *, after: int) -> tuple[Place, tuple[Event, ...]]:
        """A reader's place behind an id, and what it is told before anything else."""


class Waiter(Follower, Generic[A]):
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
        super().__init__(source, statuses, events.feed())
        self._rows = rows
        self._places = source
        self._texts = waits

    def look(self, tenant: Tenant, awaited_id: str) -> A:
        """It, as its row says, for one who will wait for it: without what an unfinished one waits for.

        Raises:
            NotFound: the tenant has none of that id.
        """
        return self._rows.get(tenant, awaited_id)

    def with_wait(self, awaited: A) -> A:
        """The same, with what it waits for if it is unfinished."""
        return self._texts.with_wait(awaited)

    def begin(self, tenant: Tenant, awaited: A, *, after: int) -> tuple[Place, tuple[Event, ...]]:
        """A reader's place behind an id, and what it is told before anything else.

        Raises:
            NotFound: the tenant has none of that id.
        """
        return self._places.begin(tenant, awaited, after=after)

    def events_now(self, place: Place) -> Iterator[Event]:
        """The events behind a place that there are now; raises what ``follow`` raises."""
        while not place.is_over and (events := self._places.advance(place)):
            yield from events

    def in_words(self, place: Place) -> str:
        """See Follower."""
        try:
            return self._texts.in_words(self._rows.get(place.tenant, place.turn_id))
        except LoomError:
            return ""


class TurnWaiter(Waiter[Turn]):
    """Waits for turns to end, and reads their events, for clients."""

    def __init__(self, turns: Turns, events: EventLog, waits: WaitReports, statuses: TurnStatuses) -> None:
        super().__init__(turns, EventSource(turns, events), statuses, events, waits)
        self.waits = waits
        self.events = events
