"""News of turns, as Redis publishes it: whose log has changed, and which turns have ended.

What is published while nobody listens is lost, so whoever listens also looks from time to time.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from loom_worker.core.errors import Unavailable
from loom_worker.core.redis_client import TIMEOUT_S, listening, translate_redis_errors

ENDED = "loom:ended"
"""Each message is the id of a turn that has ended, or whose session was deleted. One channel for all turns: to wait for
an end then costs Redis nothing."""
WRITTEN = "loom:news:"
"""With a turn's id: its log has changed. A channel for each, as a log that is streamed changes fifty times a second."""


@dataclass(frozen=True, slots=True)
class News:
    """What has happened.

    ``hearing``: ends are listened to only now, and of those before there is no news. ``written``: the log of a turn has
    changed, or is listened to only now and may have changed before.
    """

    kind: Literal["hearing", "written", "ended"]
    turn_id: str = ""


class NewsFeed:
    """One connection to Redis that listens; for coroutines of one event loop.

    Args:
        redis: a redis-py client, to whose server it connects by itself.
    """

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self._pubsub: Any = None

    async def news(self) -> AsyncIterator[News]:
        """Connect, and listen to the ends of all turns, and to the logs of those that are named meanwhile.

        Raises:
            Unavailable: Redis did not answer, or the connection is lost: it listens to nothing any more.
        """
        async with self._connected() as pubsub:
            async for message in pubsub.listen():
                if message["type"] != "unsubscribe":
                    yield _news(message)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        with translate_redis_errors():
            async with listening(self._redis) as client, client.pubsub() as pubsub:
                async with _timeout():
                    await pubsub.subscribe(ENDED)
                self._pubsub = pubsub
                try:
                    yield pubsub
                finally:
                    self._pubsub = None

    async def listen(self, turn_ids: Iterable[str]) -> None:
        """Listen to the logs of turns, too; each is news once Redis has begun to tell of it. Needs ``news``."""
        if self._pubsub is not None and (channels := _channels(turn_ids)):
            with translate_redis_errors():
                await self._pubsub.subscribe(*channels)

    async def ignore(self, turn_ids: Iterable[str]) -> None:
        """Listen to the logs of turns no more; Unavailable: Redis did not answer."""
        if self._pubsub is not None and (channels := _channels(turn_ids)):
            with translate_redis_errors():
                await self._pubsub.unsubscribe(*channels)


@asynccontextmanager
async def _timeout() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield
    except TimeoutError as error:
        raise Unavailable(f"Redis did not answer within {TIMEOUT_S:g} s.") from error


def _channels(turn_ids: Iterable[str]) -> list[str]:
    return [f"{WRITTEN}{turn_id}" for turn_id in turn_ids]


def _news(message: Any) -> News:
    if message["channel"] != ENDED:
        return News("written", message["channel"].removeprefix(WRITTEN))
    return News("ended", message["data"]) if message["type"] == "message" else News("hearing")
