"""Readers of events that are followed: what each of them is given, and how far it is."""

import enum
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loom_worker.core.errors import LoomError
from loom_worker.core.values.notifications import Event
from loom_worker.service.end_waits import LOOK_S
from loom_worker.service.event_source import Place


@dataclass(slots=True)
class EventBatch:
    """Events for one or more readers of a turn."""

    events: Sequence[Event]
    framed: bytes = b""
    """What the first of these readers made of them, for the others."""


class EventSink(Protocol):
    """Where a reader's events go. Nothing here blocks or raises, but ``is_barred`` and ``wait_words`` may block."""

    def has_room(self) -> bool:
        """False while the reader is slow; ``TurnFollower.resume`` then says when it is not."""

    def is_barred(self) -> bool:
        """True once the reader may read no more, as its key has ended; asked once a second, where it may block."""

    def send(self, batch: EventBatch) -> None:
        """Take the next events."""

    def wait_words(self) -> str:
        """Tell people what is waited for; empty if nobody knows."""

    def send_heartbeat(self, words: str) -> None:
        """Nothing has come for some time; ``words``: see ``wait_words``."""

    def end(self, error: LoomError | None) -> None:
        """Nothing more comes; called once.

        Args:
            error: why not, unless the reader has all, has left, is barred, or this process stops.
        """


class ReadableEvents(Protocol):
    """Where the events of what is followed are read."""

    def advance(self, place: Place) -> tuple[Event, ...]:
        """The next events, a limited number of them, and moves the place behind them; () if there are none now.

        Raises:
            NotFound: the tenant has no such turn or run.
            Unavailable: the database did not answer.
        """

    def read_many(self, places: Mapping[str, int]) -> dict[str, tuple[Event, ...]]:
        """What there is now behind an id, by turn or run; what has nothing there is missing.

        Raises:
            Unavailable: nobody answered.
        """


class FollowedStatuses(Protocol):
    """The statuses of many turns or runs at once (``store/turns.py``, ``store/runs.py``)."""

    def of(self, ids: Sequence[str], /) -> dict[str, str]:
        """By id; what is deleted is missing.

        Raises:
            Unavailable: the database did not answer.
        """


class ReaderState(enum.Enum):
    """What a reader does."""

    LIVE = enum.auto()
    """It has all there is, as far as is known, and gets what comes."""
    CATCHING_UP = enum.auto()
    """A thread of the pool reads for it."""
    FULL = enum.auto()
    """It has not taken what it was given."""
    ENDED = enum.auto()


@dataclass(eq=False, slots=True)
class FollowedReader:
    """A reader; its place is the pool's while it catches up, and otherwise the follower's."""

    place: Place
    sink: EventSink
    state: ReaderState = ReaderState.LIVE
    is_leaving: bool = False
    has_news: bool = False
    """Of its turn there was news while it was catching up."""
    told_s: float = field(default_factory=time.monotonic)
    """When it was last given anything, a heartbeat included."""

    def give(self, batch: EventBatch) -> None:
        """Give it the events behind its place."""
        self.sink.send(batch)
        self.told_s = time.monotonic()


@dataclass(eq=False, slots=True)
class FollowedTurn:
    """A turn and its readers."""

    turn_id: str
    readers: set[FollowedReader] = field(default_factory=set)
    look_at_s: float = field(default_factory=lambda: time.monotonic() + LOOK_S)
    """When its row is looked up next, in case its news was lost."""
    compare_at_s: float = field(default_factory=lambda: time.monotonic() + LOOK_S)
    """When its log is looked at next."""

    def live(self) -> dict[int, list[FollowedReader]]:
        """Readers that wait for news, by the id of the last event that they got."""
        found: dict[int, list[FollowedReader]] = {}
        for reader in self.readers:
            if reader.state is ReaderState.LIVE and not reader.place.is_ahead_of_journal:
                found.setdefault(reader.place.after, []).append(reader)
        return found

    def has_live(self) -> bool:
        """True if any reader waits for news."""
        return any(reader.state is ReaderState.LIVE for reader in self.readers)

    def newest(self) -> int:
        """The id of the last event that any live reader got."""
        return max((reader.place.after for reader in self.readers if reader.state is ReaderState.LIVE), default=0)
