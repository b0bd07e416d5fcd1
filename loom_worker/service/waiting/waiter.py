"""Follows turns, or runs, for all who read their events or wait for their ends, in coroutines on one event loop.

Redis publishes which logs have changed. Each of them is then read once, and given to all of its readers in one step of
the loop. A reader that is behind, or slow, goes on in a coroutine of its own until it has all there is. All that may
block is done by a few threads. News can be lost, so once a second all is looked up: one query for many.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Generic, Protocol, TypeVar

from loom_worker.core.errors import LoomError, Unavailable
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.turns import UNFINISHED, Turn
from loom_worker.events.log import EventLog
from loom_worker.events.news import News, NewsFeed
from loom_worker.service.waiting.readers import EventBatch, EventSink, Followed, Ids, Reader
from loom_worker.service.waiting.reports import WaitReports
from loom_worker.service.waiting.sources import READ_EVENTS, A, EventSource, Place, ReadableEvents
from loom_worker.store.turns import Turns, TurnStatuses

log = logging.getLogger(__name__)
T = TypeVar("T")

LOOK_S = 1.0
"""How often what is followed is looked up in the database, and compared with its log, in case news was lost."""
HEARTBEAT_LOOKS = 5
"""A reader that nothing came for since so many looks hears what is waited for, and so that it is still served."""
RETRY_S = 1.0
"""Pause before Redis is asked again for its news."""
KNOWN_ENDS = 4096
"""Ends that are remembered, for those who begin to wait a moment later; many more than there are in a second."""
LOG_THREADS = 4
"""For logs and journals. A rebuild holds the interpreter's lock anyway, so more would not be faster."""
POOL_THREADS = LOG_THREADS + 1
"""One is for rows alone: a Redis that does not answer must not keep the database's answer back."""


class WaitTexts(Protocol[A]):
    """Adds what an unfinished one waits for (``WaitReports``, ``RunWaits``)."""

    def with_wait(self, awaited: A, /) -> A:
        """The same, with what it waits for."""

    def in_words(self, awaited: A, /) -> str:
        """What it waits for, for people who look on; empty if that is nothing, or not known."""


class Waiter(Generic[A]):
    """Follows what is read or waited for; its coroutines run from then on.

    ``ended`` and ``follow`` are for the thread of one event loop, all else for any.
    """

    def __init__(self, source: ReadableEvents[A], feed: NewsFeed, texts: WaitTexts[A]) -> None:
        self.source = source
        self.texts = texts
        self._feed = feed
        self._followed: dict[str, Followed] = {}
        self._ends: OrderedDict[str, float] = OrderedDict()
        self._knows_ends_since_s = math.inf
        self._log_threads = ThreadPoolExecutor(LOG_THREADS, thread_name_prefix="loom-logs")
        self._row_threads = ThreadPoolExecutor(1, thread_name_prefix="loom-rows")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_draining = False
        """True once all are sent home; cannot be undone."""

    @property
    def count(self) -> int:
        return sum(len(each.readers) + len(each.waits) for each in tuple(self._followed.values()))

    async def ended(self, turn_id: str, *, since_s: float, until_s: float) -> None:
        """Return once a turn has probably ended, asks for a person or is gone, the time is up, or this process drains.

        Args:
            since_s: no end after this moment is missed; a second ago at the most, by ``time.monotonic``.
            until_s: when the time is up, by the same clock.
        """
        if self.is_draining or self._ends.get(turn_id, 0.0) >= since_s:
            return
        followed = self._need(turn_id)
        if since_s <= self._knows_ends_since_s:
            self._unsure.add(turn_id)
        wait = asyncio.get_running_loop().create_future()
        followed.waits.add(wait)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(until_s - time.monotonic()):
                    await wait
        finally:
            followed.waits.discard(wait)

    async def follow(self, place: Place, sink: EventSink) -> None:
        """Give a sink the events behind a place, in order and without gaps, until the last one or until all drains.

        Raises:
            NotFound: it is gone.
            Unavailable: the database did not answer.
        """
        if self.is_draining:
            return
        reader, followed = Reader(place, sink), self._need(place.turn_id)
        try:
            async with reader.limit:
                await self._read(reader, followed)
        except TimeoutError:
            if reader.error is not None:
                raise reader.error from None
        finally:
            followed.readers.discard(reader)

    def events_now(self, place: Place) -> Iterator[Event]:
        """The events behind a place that there are now; raises what ``follow`` raises."""
        while not place.is_over and (events := self.source.advance(place)):
            yield from events

    def in_words(self, place: Place) -> str:
        """What is waited for where somebody reads, for people; empty if nobody knows."""
        try:
            return self.texts.in_words(self.source.look(place.tenant, place.turn_id))
        except LoomError:
            return ""

    def drain(self) -> None:
        """Send all home, and every later one at once."""
        self.is_draining = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended, and all coroutines with it
                self._loop.call_soon_threadsafe(self._send_home)

    def close(self) -> None:
        """Follow nothing any more, and end the threads."""
        self.drain()
        for threads in (self._log_threads, self._row_threads):
            threads.shutdown(cancel_futures=True)

    def _send_home(self) -> None:
        for followed in self._followed.values():
            followed.tell()
            for reader in followed.readers:
                reader.stop()

    def _need(self, turn_id: str) -> Followed:
        if self._task is None:
            self._loop = asyncio.get_running_loop()
            self._unheard, self._changed = Ids(), Ids()
            self._unsure, self._uncompared, self._quiet = Ids(), Ids(), Ids()
            self._task = self._loop.create_task(self._run(), context=Context())
        return self._followed.setdefault(turn_id, Followed())

    async def _run(self) -> None:
        work = (
            self._hear(),
            self._unheard.each(self._subscribe),
            self._changed.each(self._read_logs),
            self._unsure.each(self._look),
            self._uncompared.each(self._compare),
            self._quiet.each(self._send_heartbeats),
        )
        try:
            async with asyncio.TaskGroup() as group:
                for each in work:
                    group.create_task(each)
                while True:
                    await asyncio.sleep(LOOK_S)
                    self._tick()
        finally:
            self._task, self._knows_ends_since_s = None, math.inf

    def _tick(self) -> None:
        """Have all looked at that is done once a second."""
        unused = [turn_id for turn_id, each in self._followed.items() if not (each.readers or each.waits)]
        for turn_id in unused:
            if self._followed.pop(turn_id).is_listened_to:
                self._unheard.add(turn_id)
        self._unsure.add(*self._followed)
        for turn_id, followed in self._followed.items():
            if followed.readers:
                self._uncompared.add(turn_id)
                followed.quiet_looks += 1
                if followed.quiet_looks >= HEARTBEAT_LOOKS:
                    followed.quiet_looks = 0
                    self._quiet.add(turn_id)

    async def _hear(self) -> None:
        """Take the news; where Redis is away, connect again once it is back."""
        while True:
            try:
                async for news in self._feed.news():
                    self._take(news)
            except Unavailable as error:
                log.warning("no news of turns, which are looked up meanwhile: %s", error)
            self._knows_ends_since_s = math.inf
            await asyncio.sleep(RETRY_S)

    def _take(self, news: News) -> None:
        now_s, followed = time.monotonic(), self._followed.get(news.turn_id)
        match news.kind:
            case "hearing":
                self._knows_ends_since_s = now_s
                self._unsure.add(*self._followed)  # whoever waits already may have missed an end
                self._unheard.add(*(turn_id for turn_id, each in self._followed.items() if each.is_listened_to))
            case "ended":
                self._ends[news.turn_id] = now_s
                self._ends.move_to_end(news.turn_id)
                if len(self._ends) > KNOWN_ENDS:
                    self._knows_ends_since_s = max(self._knows_ends_since_s, self._ends.popitem(last=False)[1])
                if followed is not None:
                    followed.tell()
            case "written" if followed is not None:
                followed.news += 1
                self._changed.add(news.turn_id)

    async def _subscribe(self, turn_ids: Collection[str]) -> None:
        with suppress(Unavailable):  # whoever hears the news says so, and connects again
            await self._feed.listen([turn_id for turn_id in turn_ids if turn_id in self._followed])
            await self._feed.ignore([turn_id for turn_id in turn_ids if turn_id not in self._followed])

    async def _read(self, reader: Reader, followed: Followed) -> None:
        place = reader.place
        followed.readers.add(reader)
        if not place.is_finished:
            woken = reader.live()
            # Once its news is listened to, that is news of it.
            (self._changed if followed.is_listened_to else self._unheard).add(place.turn_id)
            followed.is_listened_to = True
            await woken
        while not reader.is_over:
            await reader.sink.taken()
            news = followed.news
            data = await self._in(self._log_threads, lambda: self._advance(reader))
            reader.sink.send(data)
            if not data and not reader.is_over:
                if followed.news != news:
                    self._changed.add(place.turn_id)
                await reader.live()

    def _advance(self, reader: Reader) -> bytes:
        """The reader's next events, out of the log or the journal, as they are sent."""
        events = self.source.advance(reader.place)
        return reader.sink.framed(EventBatch(events)) if events else b""

    async def _read_logs(self, changed: Collection[str]) -> None:
        """Read the logs that have changed, each once for all readers at the same place."""
        places = [(turn_id, after) for turn_id in changed for after in self._live_places(turn_id)]
        while places:
            some = dict(places)
            places = [(turn_id, after) for turn_id, after in places if some[turn_id] != after]
            for turn_id, events in (await self._found(some)).items():
                if events:
                    self._deliver(turn_id, some[turn_id], events)

    def _live_places(self, turn_id: str) -> set[int]:
        followed = self._followed.get(turn_id)
        return {reader.place.after for reader in followed.live()} if followed else set()

    async def _found(self, places: Mapping[str, int]) -> Mapping[str, Sequence[Event]]:
        """What the logs have behind these places; of none while Redis does not answer."""
        try:
            found = await self._in(self._log_threads, lambda: self.source.read_many(places))
        except Unavailable:  # they are looked up
            return {}
        return {turn_id: found.get(turn_id, ()) for turn_id in places}

    def _deliver(self, turn_id: str, after: int, found: Sequence[Event]) -> None:
        """Give readers at the same place what the log has behind it."""
        followed = self._followed.get(turn_id)
        readers = [each for each in followed.live() if each.place.after == after] if followed else []
        if followed is None or not readers:
            return
        events = readers[0].place.following(found)
        batch = EventBatch(events or ())
        followed.quiet_looks = 0
        for reader in readers:
            has_taken = events is not None and reader.sink.has_room
            if has_taken:
                reader.sink.send(reader.sink.framed(batch))
                reader.place.move(batch.events)
            if not has_taken or reader.is_over or len(found) == READ_EVENTS:  # many more, and others wait
                reader.wake()

    async def _look(self, unsure: Collection[str]) -> None:
        """Look up the rows of what is followed, and the keys of its readers."""
        known = {turn_id: followed for turn_id in unsure if (followed := self._followed.get(turn_id))}
        readers = [reader for followed in known.values() for reader in followed.readers]
        error: LoomError | None = None
        statuses: Mapping[str, str] = {}
        barred: Collection[Reader] = ()
        try:
            statuses, barred = await self._in(self._row_threads, lambda: self._look_up([*known], readers))
        except LoomError as caught:
            error = caught
        for turn_id, followed in known.items():
            status = statuses.get(turn_id)
            if status not in ("queued", "in_progress"):
                followed.tell()
            for reader in followed.readers:
                if error is not None or reader in barred:
                    reader.stop(error)
                elif status not in UNFINISHED or reader.place.is_ahead_of_journal:
                    reader.wake()

    def _look_up(self, turn_ids: Sequence[str], readers: Sequence[Reader]) -> tuple[dict[str, str], set[Reader]]:
        return self.source.statuses(turn_ids), {reader for reader in readers if reader.sink.is_barred()}

    async def _compare(self, turn_ids: Collection[str]) -> None:
        """Compare readers with the logs of their turns: there may be more, or a log may be lost."""
        places = {turn_id: max(places) for turn_id in turn_ids if (places := self._live_places(turn_id))}
        # From one event before, so that a log that is there as the reader knows it says so.
        found = await self._found({turn_id: max(0, after - 1) for turn_id, after in places.items()})
        for turn_id, events in found.items():
            if events and events[-1].id > places[turn_id]:
                self._changed.add(turn_id)
            elif not events or events[0].id != places[turn_id]:
                for reader in self._followed[turn_id].live():
                    reader.wake()

    async def _send_heartbeats(self, turn_ids: Collection[str]) -> None:
        for turn_id in turn_ids:
            followed = self._followed.get(turn_id)
            readers = [reader for reader in followed.readers if reader.is_live] if followed else []
            if not readers:
                continue
            words = await self._in(self._log_threads, partial(self.in_words, readers[0].place))
            for reader in readers:
                if reader.is_live:
                    reader.sink.send_heartbeat(words)

    async def _in(self, threads: Executor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, work)


class TurnWaiter(Waiter[Turn]):
    """Waits for turns to end, and reads their events, for clients."""

    def __init__(self, turns: Turns, events: EventLog, waits: WaitReports, statuses: TurnStatuses) -> None:
        super().__init__(EventSource(turns, events, statuses), events.feed(), waits)
        self.waits = waits
        self.events = events
