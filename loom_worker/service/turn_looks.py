"""Looking turns up, many at a time: what of them has changed without any news of it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from loom_worker.core.errors import LoomError, Unavailable
from loom_worker.core.values.turns import UNFINISHED
from loom_worker.service.followed import FollowedReader, FollowedStatuses, ReadableEvents


@dataclass(slots=True)
class TurnLook:
    """A look at the rows of some turns, and what it found."""

    readers: tuple[FollowedReader, ...]
    """Of their events."""
    waited: Collection[str]
    """Turns whose end is waited for."""
    statuses: dict[str, str] = field(default_factory=dict)
    barred: set[FollowedReader] = field(default_factory=set)
    """Readers whose keys have ended."""
    error: LoomError | None = None
    """Why nothing is known."""

    def ended(self) -> Iterator[str]:
        """Turns that nobody needs to wait for: they have ended, ask for a person or are gone, or cannot be read."""
        for turn_id in self.waited:
            if self.error is not None or self.statuses.get(turn_id) not in ("queued", "in_progress"):
                yield turn_id

    def behind(self) -> Iterator[FollowedReader]:
        """Readers that may get something, or must be told that there is nothing more."""
        for reader in self.readers:
            is_over = self.statuses.get(reader.place.turn_id) not in UNFINISHED
            if is_over or reader.place.is_ahead_of_journal:
                yield reader


class TurnLooks:
    """Looks turns up, with one question however many they are."""

    def __init__(self, source: ReadableEvents, statuses: FollowedStatuses) -> None:
        self._source = source
        self._statuses = statuses

    def fill(self, look: TurnLook) -> None:
        """Find out what a look is for."""
        look.barred = {reader for reader in look.readers if reader.sink.is_barred()}
        read = {reader.place.turn_id for reader in look.readers}
        try:
            look.statuses = self._statuses.of([*read.union(look.waited)])
        except LoomError as error:
            look.error = error

    def beside_their_logs(self, places: Mapping[str, int]) -> set[str]:
        """Turns of whose logs the readers have not the last event: there is more, or the log was lost.

        Args:
            places: by turn: the id of the last event that any reader got.
        """
        try:
            # From one event before, so that a log that is there as the reader knows it says so.
            found = self._source.read_many({turn_id: max(0, after - 1) for turn_id, after in places.items()})
        except Unavailable:
            return set()
        return {turn for turn, after in places.items() if [event.id for event in found.get(turn, ())] != [after]}
