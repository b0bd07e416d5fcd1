"""Writes the event log of a running turn, collects what its journal must know, and flushes delayed events together."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from loom_worker.core import log_context
from loom_worker.core.errors import Fenced, Unavailable
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import TERMINAL, Event
from loom_worker.events.log import EventLog, Unsent

log = logging.getLogger(__name__)

DELTA = "output_text.delta"

MOST_CHARS = 16 * 1024
"""Characters of one delta; longer pieces are split, so that no single event is large."""

RETRY_S = 1.0
"""Pause after Redis did not answer: a turn never waits for its readers."""

TOGETHER_S = 0.02
"""Events within this time of the last write are delayed and written together; a reader sees them at most so much later.
A reply that comes in one burst then costs three round trips instead of one for each piece (24 to 3 for the demo's
greeting)."""


class EventFlusher:
    """A thread that flushes writers; one for a process. It starts with the first writer and sleeps while none waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writers: set[EventWriter] = set()
        self._has_writers = threading.Event()
        self._thread: threading.Thread | None = None

    def soon(self, writer: "EventWriter") -> None:
        """Have a writer flushed within TOGETHER_S."""
        with self._lock:
            self._writers.add(writer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="loom-flusher", daemon=True)
                self._thread.start()
        self._has_writers.set()

    def _run(self) -> None:
        while True:
            self._has_writers.wait()
            time.sleep(TOGETHER_S)
            self._has_writers.clear()
            with self._lock:
                writers, self._writers = self._writers, set()
            for writer in writers:
                try:
                    writer.flush()
                except Exception:  # the top of a thread: one writer that cannot write must not silence the others
                    log.exception("an event log was not written")


class EventWriter:
    """Writes the events of one turn while this worker owns it.

    A failure of Redis never fails the turn: what could not be written is kept and written with the next event.
    """

    def __init__(
        self,
        events: EventLog,
        turn_id: str,
        journaled: Callable[[], Sequence[Event]],
        *,
        flusher: EventFlusher,
        fence: int,
        first: int | None = None,
    ) -> None:
        """Begin to write.

        Args:
            journaled: rebuilds the log from the journal as it was at the claim; called only if the log was lost.
            flusher: writes delayed events.
            fence: our claim's; once an owner with a higher one has written, none of our events is written any more.
            first: the id of our first event, if it is known (2, for a turn that nobody ran before); else Redis knows.
        """
        self._ids = log_context.ids()  # the flusher writes for many turns
        self._events = events
        self._turn_id = turn_id
        self._journaled = journaled
        self._written: list[tuple[str, Json]] = []  # all events of this owner, in order
        self._first = first  # the id of the first of them
        self._sent = 0  # how many of them are in Redis
        self._tried = (
            0  # how many were sent, whether or not Redis confirmed it: they may be there, so they stay as they are
        )
        self._log: list[Json] = []  # what the journal does not have of them yet
        self._logged = 0
        self._paused_until_s = 0.0
        # Nothing must be looked up of a log that is begun here, so what comes at once is written together.
        self._sent_s = 0.0 if first is None else time.monotonic()
        self._flusher = flusher
        self._fence = fence
        self._name = secrets.token_hex(6)
        self._lock = threading.Lock()
        self._is_closed = self._waits_for_save = False

    def close(self) -> None:
        """Write nothing more, not even delayed events: from now on the log may be another owner's."""
        with self._lock:
            self._is_closed = True

    def flush(self) -> None:
        """Write the delayed events in their order."""
        with self._lock, log_context.about(self._ids):
            is_held = self._is_closed or self._waits_for_save
            if not is_held and self._sent < len(self._written) and time.monotonic() >= self._paused_until_s:
                self._flush()

    def emit(self, kind: str, data: Json) -> None:
        """Write an event."""
        self._add(kind, data, {"type": kind, "data": data})

    def emit_once_saved(self, kind: str, data: Json) -> None:
        """Write an event that readers act on, and all after it, when ``saved`` says that the journal has it."""
        with self._lock:
            self._waits_for_save = True
        self.emit(kind, data)

    def saved(self) -> None:
        """The journal has what take_log gave."""
        with self._lock:
            was_delayed, self._waits_for_save = self._waits_for_save, False
        if was_delayed:
            self.flush()

    def end(self, kind: str, data: Json, append: Callable[[Unsent], int | None]) -> None:
        """Write the final event, with all that is delayed; Unavailable: Redis did not answer, and nothing was done.

        Args:
            append: adds events as EventLog.append does, and what else is to be done in the same step. It is called once
                in any case, with no events where another owner writes the log by now.
        """
        with self._lock:
            if self._is_closed:
                with suppress(Fenced):
                    append(Unsent(self._turn_id, (), least=0))
                return
            self._written.append((kind, data))
            self._write(append)

    def delta(self, text: str, *, reply_n: int, tries: Sequence[Json] = ()) -> None:
        """Write a piece of the reply that will become step reply_n, and tries (Event); it joins a delayed piece."""
        for begin in range(0, len(text) or bool(tries), MOST_CHARS):
            piece = text[begin : begin + MOST_CHARS]
            last = self._log[-1] if self._log else {}
            data = {"text": piece, **({"tries": list(tries)} if tries and not begin else {})}
            if last.get("reply") != reply_n:
                self._add(DELTA, data, {"reply": reply_n, "cuts": [len(piece)]})
            elif "tries" not in data and self._join(piece):
                last["cuts"][-1] += len(piece)
            else:
                last["cuts"].append(len(piece))
                self._add(DELTA, data, None)

    def _join(self, text: str) -> bool:
        """Append to the last delta; False if it has been sent, or would become too long."""
        with self._lock:
            if len(self._written) <= max(self._sent, self._tried):
                return False
            before = self._written[-1][1]
            if len(before["text"]) + len(text) > MOST_CHARS:
                return False
            self._written[-1] = (DELTA, {**before, "text": before["text"] + text})
            return True

    def drop_deltas(self, *, reply_n: int) -> bool:
        """Note that a streamed reply will not be journaled: its deltas keep their ids, but lose their text.

        Returns:
            True if readers saw any text of it.
        """
        dropped = [entry for entry in self._log if entry.get("reply") == reply_n]
        has_text = any(sum(entry["cuts"]) for entry in dropped)
        for entry in dropped:
            entry["lost"] = len(entry.pop("cuts"))
            entry.pop("reply")
        return has_text

    def orphans(self) -> tuple[Event, ...]:
        """Events that are not in the journal: with text among them, an earlier owner was interrupted."""
        known = len(self._journaled())
        try:
            return self._events.read(self._turn_id, after=known, most=100_000)  # all
        except Unavailable as error:
            self._pause(error)
            return ()

    def take_log(self) -> Json | None:
        """What the journal must store with the next step, None if nothing; call it once for each save."""
        if not self._log:
            return None
        if self._first is None:  # Redis has not answered yet; its log will be restored with these ids
            self._first = len(self._journaled()) + 1
        first, last = self._first + self._logged, self._first + len(self._written) - 1
        payload = {"first": first, "last": last, "log": self._log}  # the last id is for SQL: see Calls.close
        self._logged, self._log = len(self._written), []
        return payload

    def _add(self, kind: str, data: Json, entry: Json | None) -> None:
        with self._lock:
            self._written.append((kind, data))
            self._waits_for_save = self._waits_for_save and kind not in TERMINAL
        if entry is not None:
            self._log.append(entry)
        if kind in TERMINAL or time.monotonic() - self._sent_s >= TOGETHER_S:
            self.flush()
        else:
            self._flusher.soon(self)

    def _flush(self) -> None:
        try:
            self._write(self._append)
        except Unavailable as error:
            self._pause(error)

    def _write(self, append: Callable[[Unsent], int | None]) -> None:
        try:
            if self._first is None:
                self._open()
            self._send(append)
        except Fenced as error:  # we slept; the next write to the journal fails and reports it
            log.warning("event log: %s", error)
            self._is_closed = True

    def _pause(self, error: Unavailable) -> None:
        self._paused_until_s = time.monotonic() + RETRY_S
        log.warning("event log: %s", error)

    def _open(self) -> None:
        last = self._events.last_id(self._turn_id)
        journaled = self._journaled()
        if last < len(journaled):
            self._events.restore(self._turn_id, journaled, fence=self._fence)
            last = len(journaled)
        self._first = last + 1

    def _send(self, append: Callable[[Unsent], int | None]) -> None:
        first = self._first or 1
        new = tuple(self._written[self._sent :])
        self._tried = len(self._written)
        least = first - 1 + self._sent
        is_lost = append(Unsent(self._turn_id, new, least, self._fence, (self._name, self._sent))) is None
        if not is_lost or self._is_restored(first, self._sent + len(new)):
            self._sent += len(new)
            self._sent_s = time.monotonic()

    def _is_restored(self, first: int, count: int) -> bool:
        """Write the whole log again, up to so many events of ours; False if Redis did not answer."""
        before = list(self._journaled())
        before += [Event(n, "output_text.delta", {"text": ""}) for n in range(len(before) + 1, first)]
        ours = [Event(first + n, kind, data) for n, (kind, data) in enumerate(self._written[:count])]
        try:
            self._events.restore(self._turn_id, [*before[: first - 1], *ours], fence=self._fence)
        except Unavailable as error:
            self._pause(error)
            return False
        return True

    def _append(self, unsent: Unsent) -> int | None:
        fence, written = unsent.fence, unsent.written
        return self._events.append(unsent.turn_id, unsent.events, least=unsent.least, fence=fence, written=written)
