"""The writer of a running turn: it writes the live log and remembers what the journal must know of it."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence

from loom_worker.core.errors import Fenced, Unavailable
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import TERMINAL, Event
from loom_worker.events.flusher import TOGETHER_S, Flusher
from loom_worker.events.log import EventLog

log = logging.getLogger(__name__)

DELTA = "output_text.delta"

MOST_CHARS = 16 * 1024
"""Of one delta; longer pieces are told in parts, so that no single event is large."""

RETRY_S = 1.0
"""A Redis that did not answer is left alone for so long: a turn never waits for its readers."""


class EventWriter:
    """Writes the events of one turn while this worker owns it.

    A failing Redis never fails the turn: what could not be written is kept and written with the next event.
    """

    def __init__(
        self,
        events: EventLog,
        turn_id: str,
        journaled: Callable[[], Sequence[Event]],
        *,
        flusher: Flusher,
        fence: int,
        first: int | None = None,
    ) -> None:
        """Begin to write.

        Args:
            journaled: makes the log anew from the journal as it was at the claim; called only if the log was lost.
            flusher: writes what was put off.
            fence: our claim's; once an owner with a higher one has written, nothing of ours is written any more.
            first: the id of our first event, where it is known (2, for a turn that nobody ran before); else asked for.
        """
        self._events = events
        self._turn_id = turn_id
        self._journaled = journaled
        self._told: list[tuple[str, Json]] = []  # everything this owner wrote, in order
        self._first = first  # the id of the first of it
        self._sent = 0  # how many of it are in Redis
        self._tried = 0  # how many of it were sent, whether or not Redis said so: they may be there as they were
        self._log: list[Json] = []  # the part of it that the journal does not have yet
        self._logged = 0
        self._silent_until_s = 0.0
        self._written_s = 0.0
        self._flusher = flusher
        self._fence = fence
        self._name = secrets.token_hex(6)
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """Write nothing more, not even what was put off: from now on the log may be another owner's."""
        with self._lock:
            self._is_closed = True

    def flush(self) -> None:
        """Write what was put off, in the order in which it came."""
        with self._lock:
            if not self._is_closed and self._sent < len(self._told) and time.monotonic() >= self._silent_until_s:
                self._flush()

    def emit(self, kind: str, data: Json) -> None:
        """Write an event."""
        self._add(kind, data, {"type": kind, "data": data})

    def delta(self, text: str, *, reply_n: int) -> None:
        """Write a piece of the reply that will become step reply_n; it joins a piece that is still put off."""
        for begin in range(0, len(text), MOST_CHARS):
            self._delta(text[begin : begin + MOST_CHARS], reply_n)

    def _delta(self, text: str, reply_n: int) -> None:
        last = self._log[-1] if self._log else {}
        if last.get("reply") != reply_n:
            self._add(DELTA, {"text": text}, {"reply": reply_n, "cuts": [len(text)]})
        elif self._join(text):
            last["cuts"][-1] += len(text)
        else:
            last["cuts"].append(len(text))
            self._add(DELTA, {"text": text}, None)

    def _join(self, text: str) -> bool:
        with self._lock:
            if len(self._told) <= max(self._sent, self._tried):
                return False
            before = self._told[-1][1]["text"]
            if len(before) + len(text) > MOST_CHARS:
                return False
            self._told[-1] = (DELTA, {"text": before + text})
            return True

    def drop_deltas(self, *, reply_n: int) -> bool:
        """A reply that was streaming will not be journaled: its deltas keep their ids, but have no text any more.

        Returns:
            True if there were any.
        """
        dropped = [entry for entry in self._log if entry.get("reply") == reply_n]
        for entry in dropped:
            entry["lost"] = len(entry.pop("cuts"))
            entry.pop("reply")
        return bool(dropped)

    def has_orphans(self) -> bool:
        """True if readers saw text that the journal does not know of: an earlier owner was cut short."""
        known = len(self._journaled())
        try:
            unknown = self._events.read(self._turn_id, after=known, wait_ms=0)
        except Unavailable as error:
            self._be_silent(error)
            return False
        return any(event.type == "output_text.delta" and event.data["text"] for event in unknown)

    def take_log(self) -> Json | None:
        """What the journal must be told with the next step, None if nothing; to be asked once for each save."""
        if not self._log:
            return None
        if self._first is None:  # Redis has not answered yet; its log will be restored with these ids
            self._first = len(self._journaled()) + 1
        payload = {"first": self._first + self._logged, "log": self._log}
        self._logged, self._log = len(self._told), []
        return payload

    def _add(self, kind: str, data: Json, entry: Json | None) -> None:
        with self._lock:
            self._told.append((kind, data))
        if entry is not None:
            self._log.append(entry)
        is_first_word = entry is not None and "cuts" in entry
        if is_first_word or kind in TERMINAL or time.monotonic() - self._written_s >= TOGETHER_S:
            self.flush()
        else:
            self._flusher.soon(self)

    def _flush(self) -> None:
        try:
            if self._first is None:
                self._open()
            self._send()
        except Unavailable as error:
            self._be_silent(error)
        except Fenced as error:  # we slept, and it is not for the writer to say so: the next write to the journal does
            log.warning("event log: %s", error)
            self._is_closed = True

    def _be_silent(self, error: Unavailable) -> None:
        self._silent_until_s = time.monotonic() + RETRY_S
        log.warning("event log: %s", error)

    def _open(self) -> None:
        last = self._events.last_id(self._turn_id)
        journaled = self._journaled()
        if last < len(journaled):
            self._events.restore(self._turn_id, journaled, fence=self._fence)
            last = len(journaled)
        self._first = last + 1

    def _send(self) -> None:
        first = self._first or 1
        told = self._told[self._sent :]
        self._tried = len(self._told)
        written, least = (self._name, self._sent), first - 1 + self._sent
        last = self._events.append(self._turn_id, told, least=least, fence=self._fence, written=written)
        if last is None:
            before = list(self._journaled())
            before += [Event(n, "output_text.delta", {"text": ""}) for n in range(len(before) + 1, first)]
            ours = self._told[: self._sent + len(told)]
            whole = [Event(first + n, kind, data) for n, (kind, data) in enumerate(ours)]
            self._events.restore(self._turn_id, [*before[: first - 1], *whole], fence=self._fence)
        self._sent += len(told)
        self._written_s = time.monotonic()
