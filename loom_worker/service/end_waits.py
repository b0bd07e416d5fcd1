"""Who waits for the ends of turns: thousands may, and none of them holds a thread."""

import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Protocol, Self

LOOK_S = 1.0
"""How often a turn that is waited for is looked up in the database, in case its news was lost."""
NEVER_S = float("inf")
HEARD = 4096
"""Ends that are remembered, for those who begin to wait a moment later; many more than there are in a second."""


class EndListener(Protocol):
    """What is told that a wait is over."""

    def over(self) -> None:
        """The turn has probably ended, asks for a person or is gone, or the time is up, or this process stops.

        Called once for each ``begin``, by any thread; must not block.
        """


class EndWait:
    """A wait for the end of a turn.

    It hears of an end from ``renew`` on, so whoever looks at the turn after that, and then begins to wait, misses none.
    """

    def __init__(self, waits: "EndWaits", turn_id: str) -> None:
        self.turn_id = turn_id
        self.until_s = self.look_at_s = NEVER_S
        self.renewed_s = 0.0
        self.listener: EndListener | None = None
        self.is_over = False
        self._waits = waits

    def renew(self, *, since_s: float | None = None) -> Self:
        """Hear of an end from now on, also if one was heard of before.

        Args:
            since_s: from this moment on, a second ago at the most, by ``time.monotonic``.
        """
        self._waits.add(self, since_s)
        return self

    def begin(self, listener: EndListener, *, until_s: float) -> None:
        """Wait; the listener is told at once if the wait is over already.

        Args:
            until_s: when the time is up, by ``time.monotonic``.
        """
        self._waits.begin(self, listener, until_s)

    def stop(self) -> None:
        """The wait is over, whatever the turn does: its listener is told, now or when it begins."""
        self._waits.stop(self)

    def close(self) -> None:
        """Wait no more; a listener that was not told yet is not told any more."""
        self._waits.remove(self)


class EndWaits:
    """All waits of a process; used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_turn: dict[str, set[EndWait]] = {}
        self._is_draining = False
        self._heard_since_s = NEVER_S
        self._heard: OrderedDict[str, None] = OrderedDict()
        self._count = 0

    @property
    def has_any(self) -> bool:
        """True while anybody hears of ends."""
        return bool(self._by_turn)

    @property
    def count(self) -> int:
        """How many have begun to wait, and whose listeners have not been told."""
        return self._count

    def add(self, wait: EndWait, since_s: float | None) -> None:
        """Let a wait hear of the end of its turn; see ``EndWait.renew``."""
        with self._lock:
            wait.is_over = since_s is not None and wait.turn_id in self._heard
            wait.listener, wait.renewed_s = None, time.monotonic() if since_s is None else since_s
            self._by_turn.setdefault(wait.turn_id, set()).add(wait)

    def begin(self, wait: EndWait, listener: EndListener, until_s: float) -> None:
        """See ``EndWait.begin``."""
        with self._lock:
            is_over = wait.is_over or self._is_draining
            if is_over:
                self._discard(wait)
            else:
                # What was renewed before ends were heard of may have missed one.
                first_s = LOOK_S if wait.renewed_s > self._heard_since_s else 0.0
                wait.listener, wait.until_s, wait.look_at_s = listener, until_s, time.monotonic() + first_s
                self._count += 1
        if is_over:
            listener.over()

    def remove(self, wait: EndWait) -> None:
        """Nothing happens if it is not there."""
        with self._lock:
            if wait.listener is not None:
                wait.listener = None
                self._count -= 1
            self._discard(wait)

    def stop(self, wait: EndWait) -> None:
        """See ``EndWait.stop``."""
        self._end([wait])

    def begin_to_hear(self) -> None:
        """Ends are heard of from now on; whoever waits already may have missed one, and is to look."""
        with self._lock:
            self._heard_since_s = now_s = time.monotonic()
            for waits in self._by_turn.values():
                for wait in waits:
                    wait.look_at_s = now_s

    def hear(self, turn_ids: Collection[str]) -> None:
        """These turns have ended, as their news says."""
        with self._lock:
            self._heard.update(dict.fromkeys(turn_ids))
            while len(self._heard) > HEARD:
                self._heard.popitem(last=False)
        self.tell(turn_ids)

    def tell(self, turn_ids: Iterable[str]) -> None:
        """These turns are to be looked at by those who wait for them."""
        with self._lock:
            found = [wait for turn_id in turn_ids for wait in self._by_turn.get(turn_id, ())]
        self._end(found)

    def drain(self) -> None:
        """End all waits, and every later one at once; cannot be undone."""
        with self._lock:
            self._is_draining = True
            found = [wait for waits in self._by_turn.values() for wait in waits]
        self._end(found)

    def tick(self, now_s: float) -> None:
        """End the waits whose time is up."""
        self._end([wait for wait in self._begun() if wait.until_s <= now_s])

    def due(self, now_s: float) -> set[str]:
        """Turns that are to be looked up by now, each of them once a second."""
        begun = self._begun()
        due = {wait.turn_id for wait in begun if wait.look_at_s <= now_s}
        for wait in begun:
            if wait.turn_id in due:
                wait.look_at_s = now_s + LOOK_S
        return due

    def _begun(self) -> list[EndWait]:
        with self._lock:
            return [wait for waits in self._by_turn.values() for wait in waits if wait.listener is not None]

    def _end(self, waits: Collection[EndWait]) -> None:
        for wait in waits:
            with self._lock:
                listener, wait.listener, wait.is_over = wait.listener, None, True
                if listener is not None:
                    self._discard(wait)
            if listener is not None:
                listener.over()
                with self._lock:
                    self._count -= 1

    def _discard(self, wait: EndWait) -> None:
        waits = self._by_turn.get(wait.turn_id, set())
        waits.discard(wait)
        if not waits:
            self._by_turn.pop(wait.turn_id, None)
