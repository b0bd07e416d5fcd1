"""Waiting for a turn's end, and reading its events while it runs and after; no database connection is held."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from loom_worker.core.errors import Unavailable
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.turns import Turn
from loom_worker.events.log import MAX_BLOCK_MS, EventLog
from loom_worker.events.rebuild import is_purged, rebuild
from loom_worker.service.wait_reports import WaitReports
from loom_worker.store.turns import Turns

READ_EVENTS = 64
"""Events that are fetched at a time, 16 KiB of text in each at the most: a slow reader holds those and no more."""
READ_CHARS = 1024 * 1024
"""Text of the events that are kept of a log made from the journal; a slow reader's next ones are made anew."""
LOOK_MS = 1_000
"""How often a waiter checks whether to stop, and the database in case the live log is lost."""


class TurnWaiter:
    """Waits for turns to end, and reads their events, for clients."""

    def __init__(self, turns: Turns, events: EventLog, waits: WaitReports) -> None:
        self.waits = waits
        self._turns = turns
        self._events = events
        self._rebuilding = threading.Lock()  # a whole journal is in memory meanwhile: one at a time

    def wait(self, tenant: Tenant, turn_id: str, *, timeout_s: float, is_stopping: Callable[[], bool]) -> Turn:
        """Return the turn as soon as it has ended or asks for a person, or as it is after timeout_s.

        Raises:
            NotFound: the tenant has no such turn.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            turn = self._turns.get(tenant, turn_id)
            left_ms = int((until_s - time.monotonic()) * 1000)
            if turn.is_finished or turn.status == "requires_action" or left_ms <= 0 or is_stopping():
                return self.waits.with_wait(turn)
            wait_ms = min(left_ms, LOOK_MS)
            try:
                self._events.wait_end(turn_id, wait_ms=wait_ms)
            except Unavailable:
                _pause(wait_ms)

    def events(
        self, tenant: Tenant, turn_id: str, *, after: int, is_stopping: Callable[[], bool]
    ) -> Iterator[Event | None]:
        """Events behind an id, as they come; None when there was nothing to say for 15 s. Ends after a final one.

        A reader that is ahead of the log (it was lost, and rebuilt shorter) gets ``stream.reset`` and then all of it.

        Raises:
            NotFound: the tenant has no such turn.
        """
        turn = self._turns.get(tenant, turn_id)
        if after and turn.is_finished and is_purged(*self._turns.with_journal(tenant, turn_id)):
            # Without its journal a log has other ids: who has read a part of it gets all of it again.
            yield _reset(turn_id)
            after = 0
        is_finished = turn.is_finished
        del turn  # slow readers would keep it
        quiet_since_s = time.monotonic()
        while not is_stopping():
            found = self._next(tenant, turn_id, after, is_finished=is_finished)
            for event in found:
                yield event
                if event.is_final:
                    return
            if found:
                after, quiet_since_s = found[-1].id, time.monotonic()
            elif is_finished:
                return  # the reader has had the end already
            else:
                is_finished = self._turns.get(tenant, turn_id).is_finished
                if time.monotonic() - quiet_since_s >= MAX_BLOCK_MS / 1000:
                    quiet_since_s = time.monotonic()
                    yield None

    @property
    def event_log(self) -> EventLog:
        """What readers read."""
        return self._events

    def forget(self, turns: Mapping[str, bool]) -> None:
        """Remove the events of turns whose session is deleted; see EventLog.forget.

        Raises:
            Unavailable: Redis did not answer.
        """
        self._events.forget(turns)

    def _next(self, tenant: Tenant, turn_id: str, after: int, *, is_finished: bool) -> tuple[Event, ...]:
        found = self._look(turn_id, after=after, wait_ms=0 if is_finished else LOOK_MS)
        if found and found[0].id == after + 1:
            last = found[-1]
            if last.is_final and not last.data:  # too large for the log: the turn itself is the data
                found = (*found[:-1], replace(last, data=self._turns.get(tenant, turn_id).as_json()))
            return found
        if found:  # what stands between was dropped from the log, which holds so many bytes and no more
            return self._dropped(tenant, turn_id, after, found)
        try:
            last_id = None if is_finished else self._events.last_id(turn_id)
        except Unavailable:
            return ()
        if not last_id:  # it has ended, or Redis has nothing of it: its time ran out while it waited, or all was lost
            return self._journaled(tenant, turn_id, after)
        # A reader that knows events which the log does not have: the log was lost, and is being written anew.
        return (_reset(turn_id),) if after > last_id else ()

    def _dropped(self, tenant: Tenant, turn_id: str, after: int, found: tuple[Event, ...]) -> tuple[Event, ...]:
        """What is missing before the events found, out of the journal, which may have it a little later only."""
        # Asked first: the journal of a turn that had ended by then is complete.
        is_finished = self._turns.get(tenant, turn_id).is_finished
        missing = [event for event in self._journaled(tenant, turn_id, after) if event.id < found[0].id]
        if missing or not is_finished:
            _pause(0 if missing else LOOK_MS)
            return tuple(missing)
        return found

    def _journaled(self, tenant: Tenant, turn_id: str, after: int) -> tuple[Event, ...]:
        """The next events as the journal has them."""
        with self._rebuilding:
            turn, journal = self._turns.with_journal(tenant, turn_id)
            whole = rebuild(turn, journal)
            if after <= len(whole):
                return _beginning(whole[after:])
            return (_reset(turn_id), *_beginning(whole)) if turn.is_finished else (_reset(turn_id),)

    def _look(self, turn_id: str, *, after: int, wait_ms: int) -> tuple[Event, ...]:
        try:
            return self._events.read(turn_id, after=after, wait_ms=wait_ms, most=READ_EVENTS)
        except Unavailable:
            _pause(wait_ms)
            return ()


def _reset(turn_id: str) -> Event:
    return Event(0, "stream.reset", {"turn_id": turn_id})


def _beginning(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The first events, with READ_CHARS of text at the most, but one at the least."""
    chars = 0
    for place, event in enumerate(events):
        text = event.data.get("text")
        chars += len(text) if isinstance(text, str) else len(json.dumps(event.data))
        if place and chars > READ_CHARS:
            return events[:place]
    return events


def _pause(wait_ms: int) -> None:
    """Redis is away: the database is asked instead, four times a second."""
    time.sleep(min(wait_ms, 250) / 1000)
