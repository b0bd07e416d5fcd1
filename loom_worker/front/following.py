"""Waiting for a turn's end, and reading its events while it runs and after; no database connection is held."""

import time
from collections.abc import Callable, Iterator

from loom_worker.errors import Unavailable
from loom_worker.events.log import MAX_BLOCK_MS, EventLog
from loom_worker.events.rebuild import is_purged, rebuild
from loom_worker.store.reading import Turns
from loom_worker.values.events import Event
from loom_worker.values.turns import Turn

LOOK_MS = 1_000
"""A waiter looks up this often: whether it shall stop, and in the database should the live log be lost."""


class Following:
    """Follows turns, for clients."""

    def __init__(self, turns: Turns, events: EventLog) -> None:
        self._turns = turns
        self._events = events

    def wait(self, workspace: str, turn_id: str, *, timeout_s: float, is_stopping: Callable[[], bool]) -> Turn:
        """Return the turn as soon as it has ended, or as it is after timeout_s.

        Raises:
            NotFound: the workspace has no such turn.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            turn = self._turns.get(workspace, turn_id)
            left_ms = int((until_s - time.monotonic()) * 1000)
            if turn.is_finished or left_ms <= 0 or is_stopping():
                return turn
            self._wait_end(turn_id, wait_ms=min(left_ms, LOOK_MS))

    def events(
        self, workspace: str, turn_id: str, *, after: int, is_stopping: Callable[[], bool]
    ) -> Iterator[Event | None]:
        """Events behind an id, as they come; None when there was nothing to say for 15 s. Ends after a final one.

        A reader that is ahead of the log (it was lost, and rebuilt shorter) gets ``stream.reset`` and then all of it.

        Raises:
            NotFound: the workspace has no such turn.
        """
        turn = self._turns.get(workspace, turn_id)
        quiet_since_s = time.monotonic()
        while not is_stopping():
            found = self._next(turn, after)
            for event in found:
                yield event
                if event.is_final:
                    return
            if found:
                after, quiet_since_s = found[-1].id, time.monotonic()
            elif turn.is_finished:
                return  # the reader has had the end already
            else:
                turn = self._turns.get(workspace, turn_id)
                if time.monotonic() - quiet_since_s >= MAX_BLOCK_MS / 1000:
                    quiet_since_s = time.monotonic()
                    yield None

    def _next(self, turn: Turn, after: int) -> tuple[Event, ...]:
        found = self._look(turn.id, after=after, wait_ms=0 if turn.is_finished else LOOK_MS)
        if found:
            return found
        if not turn.is_finished:
            return (Event(0, "stream.reset", {"turn_id": turn.id}),) if self._is_ahead(turn, after) else ()
        journal = self._turns.journal(turn.id)
        whole = rebuild(turn, journal)
        # Without its journal a log has other ids: whoever read a part of it gets all of it anew.
        if after > len(whole) or (after and is_purged(turn, journal)):
            return (Event(0, "stream.reset", {"turn_id": turn.id}), *whole)
        return whole[after:]

    def _is_ahead(self, turn: Turn, after: int) -> bool:
        """True for a reader that knows events the log does not have: it was lost, and is being written anew."""
        try:
            return after > self._events.last_id(turn.id)
        except Unavailable:
            return False

    def _wait_end(self, turn_id: str, *, wait_ms: int) -> None:
        try:
            self._events.wait_end(turn_id, wait_ms=wait_ms)
        except Unavailable:
            _pause(wait_ms)

    def _look(self, turn_id: str, *, after: int, wait_ms: int) -> tuple[Event, ...]:
        try:
            return self._events.read(turn_id, after=after, wait_ms=wait_ms)
        except Unavailable:
            _pause(wait_ms)
            return ()


def _pause(wait_ms: int) -> None:
    """Redis is away: the database is asked instead, four times a second."""
    time.sleep(min(wait_ms, 250) / 1000)
