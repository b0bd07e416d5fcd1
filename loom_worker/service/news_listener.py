"""Keeps a feed of news open, for a thread that watches it; where Redis is away, connects again once it is back."""

import logging
import time
from collections.abc import Iterable

from loom_worker.core.errors import Unavailable
from loom_worker.events.news import News, NewsFeed
from loom_worker.service.inbox_thread import InboxThread

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Pause before Redis is asked again for its news."""


class NewsListener:
    """Listens to the ends of all turns, and to the logs of some; all of it is called by the thread that watches."""

    def __init__(self, feed: NewsFeed, thread: InboxThread) -> None:
        self._feed = feed
        self._thread = thread
        self._wanted: set[str] = set()
        self._unheard: list[str] = []
        """Of those that are wanted, to which we do not listen yet."""
        self._descriptor: int | None = None
        self._retry_at_s = 0.0

    def listen(self, turn_id: str) -> None:
        """Listen to the log of a turn; as soon as that is so, it is news."""
        self._wanted.add(turn_id)
        self._unheard.append(turn_id)

    def ignore(self, turn_ids: Iterable[str]) -> None:
        """Listen to the logs of turns no more."""
        named = set(turn_ids)
        self._wanted -= named
        heard = named.difference(self._unheard)
        self._unheard = [turn_id for turn_id in self._unheard if turn_id not in named]
        if heard and self._feed.is_open:
            try:
                self._feed.ignore(heard)
            except Unavailable as error:
                self._lose(error)

    def take(self) -> News:
        """What has come since; nothing while Redis is away."""
        if not (self._feed.is_open or self._connect()):
            return News()
        try:
            if self._unheard:
                self._feed.listen(self._unheard)
                self._unheard = []
            return self._feed.take()
        except Unavailable as error:
            self._lose(error)
            return News()

    def close(self) -> None:
        """Listen to nothing, until the next ``take``."""
        if self._descriptor is not None:
            self._thread.unwatch(self._descriptor)
            self._descriptor = None
        self._feed.close()

    def _connect(self) -> bool:
        if time.monotonic() < self._retry_at_s:
            return False
        try:
            self._feed.open()
        except Unavailable as error:
            self._lose(error)
            return False
        self._descriptor = self._feed.fileno()
        self._thread.watch(self._descriptor)
        self._unheard = list(self._wanted)
        return True

    def _lose(self, error: Unavailable) -> None:
        log.warning("no news of turns, which are looked up meanwhile: %s", error)
        self._retry_at_s = time.monotonic() + RETRY_S
        self.close()
