"""Looking turns up, many at a time: what of them has changed without any news of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from loom_worker.core.errors import LoomError, Unavailable
from loom_worker.core.values.turns import UNFINISHED
from loom_worker.service.event_source import EventSource
from loom_worker.service.followed import FollowedReader, FollowedTurn
from loom_worker.store.turn_statuses import TurnStatuses


@dataclass(slots=True)
class TurnLook:
    """A look at some turns, and what it found."""

    turns: tuple[FollowedTurn, ...]
    """Whose events are read."""
    waited: frozenset[str]
    """Ids of turns whose end is waited for."""
    places: dict[str, int] = field(init=False)
    """By turn: the id of the last event that any reader got, when the look began."""
    readers: tuple[FollowedReader, ...] = field(init=False)
    statuses: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    """Turns whose readers may get something, or must be told that there is nothing more."""
    barred: set[FollowedReader] = field(default_factory=set)
    error: LoomError | None = None
    """Why nothing is known."""

    def __post_init__(self) -> None:
        self.places = {turn.turn_id: turn.newest() for turn in self.turns}
        self.readers = tuple(reader for turn in self.turns for reader in turn.readers)

    def ended(self) -> Iterator[str]:
        """Turns that nobody needs to wait for: they have ended, ask for a person or are gone, or cannot be read."""
        for turn_id in self.waited:
            if self.error is not None or self.statuses.get(turn_id) not in ("queued", "in_progress"):
                yield turn_id


class TurnLooks:
    """Looks turns up."""

    def __init__(self, source: EventSource, statuses: TurnStatuses) -> None:
        self._source = source
        self._statuses = statuses

    def fill(self, look: TurnLook) -> None:
        """Find out what a look is for; takes two questions however many turns there are."""
        look.barred = {reader for reader in look.readers if reader.sink.is_barred()}
        try:
            look.statuses = self._statuses.of([*look.places.keys() | look.waited])
        except LoomError as error:
            look.error = error
            return
        look.changed = {turn_id for turn_id in look.places if look.statuses.get(turn_id) not in UNFINISHED}
        look.changed |= self._beside_their_logs(look.places)
        look.changed |= {reader.place.turn_id for reader in look.readers if reader.place.is_ahead_of_journal}

    def _beside_their_logs(self, places: dict[str, int]) -> set[str]:
        """Turns of whose logs the readers have not the last event: there is more, or the log was lost."""
        try:
            # From one event before, so that a log that is there as the reader knows it says so.
            found = self._source.read_many({turn_id: max(0, after - 1) for turn_id, after in places.items()})
        except Unavailable:
            return set()
        return {turn for turn, after in places.items() if [event.id for event in found.get(turn, ())] != [after]}
