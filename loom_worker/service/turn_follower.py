"""One thread that follows turns for all who read their events or wait for their ends.

Redis publishes which logs have changed. The thread then reads each of them once, for all of its readers. What may take
long (looks into the database, rebuilding a log from the journal) is done by a small pool, so that one reader's rebuild
delays nobody. News can be lost, so once a second the turns are looked up: one query for many of them.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from loom_worker.core.errors import LoomError, Unavailable
from loom_worker.events.log import EventLog
from loom_worker.service.end_waits import LOOK_S, EndWait, EndWaits
from loom_worker.service.event_source import READ_EVENTS, Place
from loom_worker.service.followed import (
    EventBatch,
    EventSink,
    FollowedReader,
    FollowedStatuses,
    FollowedTurn,
    ReadableEvents,
    ReaderState,
)
from loom_worker.service.inbox_thread import InboxThread
from loom_worker.service.news_listener import NewsListener
from loom_worker.service.turn_looks import TurnLook, TurnLooks

log = logging.getLogger(__name__)

HEARTBEAT_S = 5.0
"""A reader that nothing came for hears what is waited for, and so that it is still served."""
POOL_THREADS = 4
"""Of what may take long. A rebuild holds the interpreter's lock anyway, so more would not be faster."""


class TurnFollower:
    """Follows turns; its thread runs while there is anybody to follow them for."""

    def __init__(self, source: ReadableEvents, statuses: FollowedStatuses, events: EventLog) -> None:
        self._source = source
        self._looks = TurnLooks(source, statuses)
        self._ends = EndWaits()
        self._turns: dict[str, FollowedTurn] = {}
        self._changed: set[str] = set()
        """Turns whose logs are to be read."""
        self._thread = InboxThread("loom-follower", self)
        self._news = NewsListener(events.feed(), self._thread)
        self._pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="loom-catch-up")
        self._lock = threading.Lock()
        self._readers = 0
        self._is_draining = self._is_looking = self._is_comparing = False

    @property
    def count(self) -> int:
        """How many read or wait now, until their sinks and listeners have been told of the end."""
        return self._readers + self._ends.count

    def expect(self, turn_id: str, *, since_s: float | None = None) -> EndWait:
        """A wait for a turn's end, which hears of it from now on, or from a moment ago; see ``EndWait.renew``."""
        wait = EndWait(self._ends, turn_id).renew(since_s=since_s)
        self._thread.need()
        return wait

    def follow(self, place: Place, sink: EventSink) -> FollowedReader:
        """Give a reader the events behind a place, in order and without gaps, until the last one."""
        reader = FollowedReader(place, sink)
        with self._lock:
            self._readers += 1
        self._thread.post(partial(self._add, reader))
        return reader

    def resume(self, reader: FollowedReader) -> None:
        """A reader that had no room may have some now."""
        self._thread.post(partial(self._resume, reader))

    def leave(self, reader: FollowedReader) -> None:
        """A reader wants no more; its sink is told of the end, if it was not told already."""
        self._thread.post(partial(self._stop, reader))

    def drain(self) -> None:
        """End all readers and waits, and every later one at once; cannot be undone."""
        self._is_draining = True
        self._ends.drain()
        if self._readers:
            self._thread.post(self._drain)

    def close(self) -> None:
        """End everything, the thread included."""
        self.drain()
        self._thread.stop()
        self._pool.shutdown()

    def is_busy(self) -> bool:
        """See ``ThreadWork``."""
        return self._ends.has_any or self._readers > 0 or bool(self._turns)

    def round(self) -> bool:
        """See ``ThreadWork``: take the news, and read what it is about."""
        news = self._news.take()
        if news.is_beginning:
            self._ends.begin_to_hear()
        if news.ended:
            self._ends.hear(news.ended)
        for turn in self._known(news.written):
            self._changed.add(turn.turn_id)
            for reader in turn.readers:
                reader.has_news = True
        self._read()
        return bool(self._changed)

    def rest(self) -> None:
        """See ``ThreadWork``."""
        self._news.close()

    def _known(self, turn_ids: Iterable[str]) -> Iterator[FollowedTurn]:
        return (self._turns[turn_id] for turn_id in turn_ids if turn_id in self._turns)

    def _read(self) -> None:
        """Read the logs that have changed, each once for all readers at the same place."""
        groups = [
            (turn.turn_id, after, readers)
            for turn in self._known(self._changed)
            for after, readers in turn.live().items()
        ]
        self._changed.clear()
        while groups:
            some = {turn_id: (after, readers) for turn_id, after, readers in groups}
            groups = [group for group in groups if some[group[0]][0] != group[1]]
            try:
                found = self._source.read_many({turn_id: after for turn_id, (after, _) in some.items()})
            except Unavailable:
                return  # They are looked up.
            for turn_id, events in found.items():
                self._deliver(some[turn_id][1], EventBatch(events))

    def _deliver(self, readers: list[FollowedReader], found: EventBatch) -> None:
        """Give readers at the same place what the log has behind it."""
        events = readers[0].place.following(found.events)
        batch = EventBatch(events or ())
        for reader in readers:
            if events is None:
                self._catch_up(reader)
            elif not reader.sink.has_room():
                self._fill(reader)
            else:
                reader.give(batch)
                reader.place.move(batch.events)
                if reader.place.is_over:
                    self._end(reader)
                elif len(found.events) == READ_EVENTS:
                    self._catch_up(reader)  # there may be many more, and others wait

    def _catch_up(self, reader: FollowedReader) -> None:
        if reader.state in (ReaderState.LIVE, ReaderState.FULL):
            reader.state, reader.has_news = ReaderState.CATCHING_UP, False
            self._pool.submit(self._advance, reader)

    def _advance(self, reader: FollowedReader) -> None:
        """Give a reader what it has not got, out of the log or the journal; run by the pool."""
        error: LoomError | None = None
        has_more = True
        try:
            while has_more and not reader.place.is_over and not reader.is_leaving and reader.sink.has_room():
                events = self._source.advance(reader.place)
                has_more = bool(events)
                if has_more:
                    reader.give(EventBatch(events))
        except LoomError as caught:
            error = caught
        except Exception as caught:  # the top of a thread: the reader would wait for ever for what nobody reads
            log.exception("reading the events of %s failed", reader.place.turn_id)
            error = Unavailable(f"The events could not be read: {caught}")
        self._thread.post(partial(self._advanced, reader, error, has_more=has_more))

    def _advanced(self, reader: FollowedReader, error: LoomError | None, *, has_more: bool) -> None:
        reader.state = ReaderState.LIVE
        if error is not None or reader.place.is_over or reader.is_leaving:
            self._end(reader, error)
        elif has_more:
            self._fill(reader)
        elif reader.has_news:
            self._changed.add(reader.place.turn_id)

    def _fill(self, reader: FollowedReader) -> None:
        reader.state = ReaderState.FULL
        if reader.sink.has_room():  # It was taken just now, and nobody may say so any more.
            self._catch_up(reader)

    def _resume(self, reader: FollowedReader) -> None:
        if reader.state is ReaderState.FULL and reader.sink.has_room():
            self._catch_up(reader)

    def _add(self, reader: FollowedReader) -> None:
        turn_id = reader.place.turn_id
        if turn_id not in self._turns:
            self._turns[turn_id] = FollowedTurn(turn_id)
            self._news.listen(turn_id)
        else:
            self._changed.add(turn_id)
        self._turns[turn_id].readers.add(reader)
        if self._is_draining:
            self._end(reader)
        elif reader.place.is_finished:
            self._catch_up(reader)

    def _stop(self, reader: FollowedReader, error: LoomError | None = None) -> None:
        reader.is_leaving = True
        if reader.state is not ReaderState.CATCHING_UP:  # else the pool's thread writes to it just now
            self._end(reader, error)

    def _end(self, reader: FollowedReader, error: LoomError | None = None) -> None:
        if reader.state is ReaderState.ENDED:
            return
        reader.state = ReaderState.ENDED
        self._turns[reader.place.turn_id].readers.discard(reader)
        reader.sink.end(error)
        with self._lock:
            self._readers -= 1

    def _drain(self) -> None:
        for turn in tuple(self._turns.values()):
            for reader in tuple(turn.readers):
                self._stop(reader)

    def tick(self, now_s: float) -> None:
        """See ``ThreadWork``: what is done at times."""
        self._forget_unread()
        self._ends.tick(now_s)
        for turn in self._turns.values():
            for reader in turn.readers:
                if now_s - reader.told_s >= HEARTBEAT_S and reader.state is ReaderState.LIVE:
                    reader.told_s = now_s
                    self._pool.submit(self._find_words, reader)
        # Rows apart from logs: a Redis that does not answer must not keep the database's answer back.
        if not self._is_looking:
            self._look(now_s)
        if not self._is_comparing:
            self._compare(now_s)

    def _find_words(self, reader: FollowedReader) -> None:
        """Run by the pool."""
        words = reader.sink.wait_words()
        self._thread.post(lambda: reader.sink.send_heartbeat(words) if reader.state is ReaderState.LIVE else None)

    def _forget_unread(self) -> None:
        unread = [turn_id for turn_id, turn in self._turns.items() if not turn.readers]
        for turn_id in unread:
            del self._turns[turn_id]
        if unread:
            self._news.ignore(unread)

    def _look(self, now_s: float) -> None:
        """Have the rows of turns looked up that are read, or whose end is waited for."""
        turns = [turn for turn in self._turns.values() if turn.look_at_s <= now_s]
        for turn in turns:
            turn.look_at_s = now_s + LOOK_S
        look = TurnLook(tuple(reader for turn in turns for reader in turn.readers), self._ends.due(now_s))
        if look.readers or look.waited:
            self._is_looking = True
            self._pool.submit(self._look_up, look)

    def _look_up(self, look: TurnLook) -> None:
        """Run by the pool."""
        try:
            self._looks.fill(look)
        except Exception as caught:  # the top of a thread: nothing would be looked up any more
            log.exception("looking up turns failed")
            look.error = Unavailable(f"The turns could not be looked up: {caught}")
        self._thread.post(partial(self._looked_up, look))

    def _looked_up(self, look: TurnLook) -> None:
        self._is_looking = False
        self._ends.tell(look.ended())
        for reader in look.readers if look.error is not None else look.barred:
            self._stop(reader, look.error)
        for reader in look.behind():
            self._catch_up(reader)

    def _compare(self, now_s: float) -> None:
        """Have readers compared with the logs of their turns."""
        turns = [turn for turn in self._turns.values() if turn.compare_at_s <= now_s and turn.has_live()]
        for turn in turns:
            turn.compare_at_s = now_s + LOOK_S
        if turns:
            self._is_comparing = True
            self._pool.submit(self._compare_with_logs, {turn.turn_id: turn.newest() for turn in turns})

    def _compare_with_logs(self, places: dict[str, int]) -> None:
        """Run by the pool."""
        changed: set[str] = set()
        try:
            changed = self._looks.beside_their_logs(places)
        except Exception:  # the top of a thread: nothing would be compared any more
            log.exception("looking at the logs of turns failed")
        self._thread.post(partial(self._compared, changed))

    def _compared(self, changed: set[str]) -> None:
        self._is_comparing = False
        for turn in self._known(changed):
            for reader in tuple(turn.readers):
                self._catch_up(reader)
