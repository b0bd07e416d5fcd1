"""News of turns, as Redis publishes it: whose log has changed, and which turns have ended.

What is published while nobody listens is lost, so whoever listens also looks from time to time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from loom_worker.core.redis_client import translate_redis_errors

ENDED = "loom:ended"
"""Each message is the id of a turn that has ended, or whose session was deleted. One channel for all turns: to wait for
an end then costs Redis nothing."""
WRITTEN = "loom:news:"
"""With a turn's id: its log has changed. A channel for each, as a log that is streamed changes fifty times a second."""


@dataclass(slots=True)
class News:
    """What has happened, by turn."""

    written: set[str] = field(default_factory=set)
    """Whose log has changed, or is listened to only now and may have changed before."""
    ended: set[str] = field(default_factory=set)
    is_beginning: bool = False
    """Ends are listened to only now: of those before there is no news."""

    def add(self, kind: str, channel: str, data: Any) -> None:
        """What came on a channel; ``kind`` is ``message``, or ``subscribe`` or ``unsubscribe`` once that is done."""
        if channel == ENDED and kind == "message":
            self.ended.add(data)
        elif channel == ENDED:
            self.is_beginning = True
        elif kind != "unsubscribe":
            self.written.add(channel.removeprefix(WRITTEN))


class NewsFeed:
    """One connection to Redis that listens; for one thread.

    Args:
        redis: a redis-py client that decodes responses.
    """

    def __init__(self, redis: Any) -> None:
        self._pool = redis.connection_pool
        self._connection: Any = None

    @property
    def is_open(self) -> bool:
        """True from ``open`` until ``close`` or a failure."""
        return self._connection is not None

    def open(self) -> None:
        """Connect, and listen to ends.

        Raises:
            Unavailable: Redis did not answer.
        """
        with translate_redis_errors():
            self._connection = self._pool.get_connection()
        self._send("SUBSCRIBE", (ENDED,))

    def close(self) -> None:
        """Listen to nothing any more."""
        if self._connection is not None:
            # It is subscribed, so nobody else can use it for questions.
            self._connection.disconnect()
            self._pool.release(self._connection)
            self._connection = None

    def fileno(self) -> int:
        """Of the open connection: readable when there is news."""
        return int(self._connection._sock.fileno())

    def listen(self, turn_ids: Iterable[str]) -> None:
        """Listen to the logs of turns, too; each is news once Redis has begun to tell of it.

        Raises:
            Unavailable: Redis did not answer; the feed is closed.
        """
        self._send("SUBSCRIBE", [f"{WRITTEN}{turn_id}" for turn_id in turn_ids])

    def ignore(self, turn_ids: Iterable[str]) -> None:
        """Listen to the logs of turns no more.

        Raises:
            Unavailable: Redis did not answer; the feed is closed.
        """
        self._send("UNSUBSCRIBE", [f"{WRITTEN}{turn_id}" for turn_id in turn_ids])

    def take(self) -> News:
        """What has come so far; does not wait.

        Raises:
            Unavailable: the connection is lost; the feed is closed.
        """
        news = News()
        try:
            with translate_redis_errors():
                while self._connection.can_read(timeout=0):
                    news.add(*self._connection.read_response(push_request=True))
        except BaseException:
            self.close()
            raise
        return news

    def _send(self, command: str, channels: Iterable[str]) -> None:
        if named := tuple(channels):
            try:
                with translate_redis_errors():
                    self._connection.send_command(command, *named, check_health=False)
            except BaseException:
                self.close()
                raise
