"""How often what happened, over all processes: a hash in Redis, so the counts start again at 0 when Redis does."""

import logging
from typing import Any, Literal, get_args

import redis as client

from loom_worker.core.redis_client import translate_redis_errors

log = logging.getLogger(__name__)

KEY = "loom:blobs:counts"

Counted = Literal[
    "kept",
    "memory_hits",
    "memory_misses",
    "evicted",
    "damaged_in_memory",
    "damaged",
    "bombs",
    "lost",
    "disk_full",
    "unwritable",
    "store_full",
    "expired",
    "strays",
]
"""kept: results stored. memory_*, evicted: of the memory tier. damaged_in_memory: copies there that were dropped.
damaged, bombs, lost: reads that failed. disk_full, unwritable, store_full: results that were not stored. expired:
results removed for their age or to make room. strays: files without a row that were removed."""
COUNTED: tuple[Counted, ...] = get_args(Counted)


class Counters:
    """Counts events; while Redis does not answer, none is counted."""

    def __init__(self, redis: Any) -> None:
        """Args: redis: a redis-py client; it may decode responses or not."""
        self._redis = redis

    def count(self, what: Counted, times: int = 1) -> None:
        """Add to a counter."""
        if not times:
            return
        try:
            self._redis.hincrby(KEY, what, times)
        except client.RedisError as error:
            log.warning("not counted: %d %s (%s)", times, what, error)

    def all(self) -> dict[Counted, int]:
        """Every counter, also those at 0.

        Raises:
            Unavailable: Redis did not answer.
        """
        with translate_redis_errors():
            values = self._redis.hmget(KEY, COUNTED)
        return {what: int(value or 0) for what, value in zip(COUNTED, values, strict=True)}
