"""What a reader gets next: out of the live log of a turn, its journal where the log lacks it, or the table of a run.

Nothing here waits: a reader that is told nothing asks again once there is news, or after a while.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from loom_worker.core.errors import Unavailable
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.runs import Run
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.turns import Turn
from loom_worker.events.log import EventLog
from loom_worker.events.rebuild import is_purged, rebuild
from loom_worker.store.runs import Runs
from loom_worker.store.turns import Turns, TurnStatuses

READ_EVENTS = 64
"""Events that are fetched at a time, 16 KiB of text in each at the most: a slow reader holds those and no more."""
READ_CHARS = 1024 * 1024
"""Text of the events that are kept of a log made from the journal; a slow reader's next ones are made anew."""


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


@dataclass(slots=True)
class Place:
    """How far a reader has come in the events of a turn."""

    tenant: Tenant
    turn_id: str
    after: int
    """The id of the last event that it got."""
    is_finished: bool
    """True once the turn is known to have ended, so that its journal is complete."""
    is_over: bool = False
    """True once the reader has had the end."""
    is_ahead_of_journal: bool = False
    """True while the next event was dropped from the log and is not in the journal yet: no news tells when it is."""

    def move(self, events: Sequence[Event]) -> None:
        """The reader has got these events, which may be none."""
        if events:
            self.after = events[-1].id
            self.is_over = events[-1].is_final

    def following(self, found: Sequence[Event]) -> tuple[Event, ...] | None:
        """What the reader gets of what the log has behind this place; None if the log alone cannot tell.

        That is so if events between were dropped from the log, or the final one was too large for it.
        """
        if found and found[0].id != self.after + 1:
            return None
        events = _until_final(found)
        is_stub = bool(events) and events[-1].is_final and not events[-1].data
        return None if is_stub else events


class ReadableEvents(Protocol[A]):
    """Where turns or runs are looked up, and their events read; used by many threads.

    Raises:
        NotFound: the tenant has none of that id.
        Unavailable: nobody answered.
    """

    def look(self, tenant: Tenant, awaited_id: str, /) -> A:
        """It, as its row says, without what it waits for."""

    def statuses(self, ids: Sequence[str], /) -> dict[str, str]:
        """The statuses of many, by id; what is deleted is missing."""

    def begin(self, tenant: Tenant, awaited: A, /, *, after: int) -> tuple[Place, tuple[Event, ...]]:
        """A reader's place behind an id, and what it is told before anything else."""

    def advance(self, place: Place, /) -> tuple[Event, ...]:
        """The next events, a limited number of them, and moves the place behind them; () if there are none now."""

    def read_many(self, places: Mapping[str, int], /) -> dict[str, tuple[Event, ...]]:
        """What the logs have now behind an id, by turn or run; a log that has nothing there is missing."""


class EventSource:
    """The events of turns."""

    def __init__(self, turns: Turns, log: EventLog, statuses: TurnStatuses) -> None:
        self.look = turns.get
        self.statuses = statuses.of
        self.read_many = partial(log.read_many, most=READ_EVENTS)
        self._turns = turns
        self._log = log
        self._rebuilding = threading.Lock()  # a whole journal is in memory meanwhile: one at a time

    def begin(self, tenant: Tenant, turn: Turn, *, after: int) -> tuple[Place, tuple[Event, ...]]:
        """A reader's place behind an id; one that knows ids of a log that was since deleted is told so."""
        place = Place(tenant, turn.id, after, turn.is_finished)
        if after and turn.is_finished and is_purged(*self._turns.with_journal(tenant, turn.id)):
            # Without its journal a log has other ids: who has read a part of it gets all of it again.
            place.after = 0
            return place, (_reset(turn.id),)
        return place, ()

    def advance(self, place: Place) -> tuple[Event, ...]:
        """The next events; a reader that is ahead of the log, which was lost, gets ``stream.reset`` and then all."""
        while True:
            was_finished = place.is_finished
            events = _until_final(self._next(place))
            place.move(events)
            if events:
                return events
            if was_finished:
                place.is_over = True  # the reader has had the end already
                return ()
            place.is_finished = self._turns.get(place.tenant, place.turn_id).is_finished
            if not place.is_finished:
                return ()

    def _next(self, place: Place) -> tuple[Event, ...]:
        place.is_ahead_of_journal = False
        found = self._look(place)
        if found and found[0].id == place.after + 1:
            events = place.following(found)
            return self._with_turn(place, found) if events is None else events
        if found:  # what stands between was dropped from the log, which holds so many bytes and no more
            return self._dropped(place, found)
        try:
            last_id = None if place.is_finished else self._log.last_id(place.turn_id)
        except Unavailable:
            return ()
        if not last_id:  # it has ended, or Redis has nothing of it: its time ran out while it waited, or all was lost
            return self._journaled(place)
        # A reader that knows events which the log does not have: the log was lost, and is being written anew.
        return (_reset(place.turn_id),) if place.after > last_id else ()

    def _with_turn(self, place: Place, found: Sequence[Event]) -> tuple[Event, ...]:
        """The final event was too large for the log: the turn itself is its data."""
        *before, last = _until_final(found)
        return (*before, replace(last, data=self._turns.get(place.tenant, place.turn_id).as_json()))

    def _dropped(self, place: Place, found: tuple[Event, ...]) -> tuple[Event, ...]:
        """What is missing before the events found, out of the journal, which may have it a little later only."""
        # Asked first: the journal of a turn that had ended by then is complete.
        is_finished = self._turns.get(place.tenant, place.turn_id).is_finished
        missing = tuple(event for event in self._journaled(place) if event.id < found[0].id)
        if missing or not is_finished:
            place.is_ahead_of_journal = not missing
            return missing
        return found

    def _journaled(self, place: Place) -> tuple[Event, ...]:
        """The next events as the journal has them."""
        with self._rebuilding:
            turn, journal = self._turns.with_journal(place.tenant, place.turn_id)
            whole = rebuild(turn, journal)
            if place.after <= len(whole):
                return _beginning(whole[place.after :])
            return (_reset(turn.id), *_beginning(whole)) if turn.is_finished else (_reset(turn.id),)

    def _look(self, place: Place) -> tuple[Event, ...]:
        try:
            return self._log.read(place.turn_id, after=place.after, most=READ_EVENTS)
        except Unavailable:
            return ()


class RunEventSource:
    """The events of runs, of which nothing is ever lost or rebuilt."""

    def __init__(self, runs: Runs) -> None:
        self.look = runs.get
        self.statuses = runs.of
        self._runs = runs

    def begin(self, tenant: Tenant, run: Run, *, after: int) -> tuple[Place, tuple[Event, ...]]:
        """A reader's place behind an id, and what it is told before anything else: that it knows more than there is."""
        place = Place(tenant, run.id, after, run.is_finished)
        if after <= run.events:
            return place, ()
        place.after = 0
        return place, (Event(0, "stream.reset", {"run_id": run.id}),)

    def advance(self, place: Place) -> tuple[Event, ...]:
        """The next events; the final one with the run as its data."""
        has_ended = self._runs.has_ended(place.tenant, place.turn_id)
        events = self._runs.events(place.turn_id, after=place.after, limit=READ_EVENTS)
        if events and events[-1].is_final:
            ended = self._runs.get(place.tenant, place.turn_id)
            events = (*events[:-1], replace(events[-1], data=ended.as_json()))
        place.is_finished = has_ended
        place.move(events)
        if not events and has_ended:
            place.is_over = True  # the reader has had the end already
        return events

    def read_many(self, places: Mapping[str, int]) -> dict[str, tuple[Event, ...]]:
        """What there is now behind an id, by run."""
        found = {run_id: self._runs.events(run_id, after=after, limit=READ_EVENTS) for run_id, after in places.items()}
        return {run_id: events for run_id, events in found.items() if events}


def _reset(turn_id: str) -> Event:
    return Event(0, "stream.reset", {"turn_id": turn_id})


def _until_final(events: Sequence[Event]) -> tuple[Event, ...]:
    """The events up to a final one: nothing follows it."""
    final = next((place for place, event in enumerate(events) if event.is_final), len(events))
    return tuple(events[: final + 1])


def _beginning(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The first events, with READ_CHARS of text at the most, but one at the least."""
    chars = 0
    for place, event in enumerate(events):
        text = event.data.get("text")
        chars += len(text) if isinstance(text, str) else len(json.dumps(event.data))
        if place and chars > READ_CHARS:
            return events[:place]
    return events
