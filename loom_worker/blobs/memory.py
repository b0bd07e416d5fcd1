"""The memory tier: the bytes used most recently, in Redis, within one bound for all workers. Any of it may vanish."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import redis as client

from loom_worker.blobs.tier import digits
from loom_worker.core import metrics
from loom_worker.core.redis_client import translate_redis_errors

log = logging.getLogger(__name__)

PREFIX = "loom:blob:"
"""String: the stored bytes of a reference; expires some time after its last use, even if the index is lost."""
INDEX = "loom:blobs:used"
"""Sorted set: ``<bytes>:<ref>``; the one used last has the highest score."""
TOTAL = "loom:blobs:bytes"
"""String: the bytes of all in the index."""


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """How much is in memory now."""

    blobs: int
    stored_bytes: int


class MemoryTier:
    """Bytes in Redis. While it does not answer, nothing is stored and nothing found, for the disk has everything."""

    def __init__(self, redis: Any, *, most_bytes: int, ttl_s: float) -> None:
        """Connect to nothing yet.

        Args:
            redis: a redis-py client that does **not** decode responses.
            most_bytes: for all blobs together; 0: nothing is stored here.
            ttl_s: a blob expires so long after its last use.
        """
        self._redis = redis
        self._most_bytes = most_bytes
        self._ttl_ms = int(ttl_s * 1000)
        self._put, self._get, self._drop = (redis.register_script(_source(name)) for name in ("put", "get", "drop"))

    def put(self, ref: str, data: bytes) -> None:
        """Store these bytes in place of those used least recently; do nothing if they alone exceed the bound."""
        keys = [_key(ref), INDEX, TOTAL]
        if not self._most_bytes or len(data) > self._most_bytes:
            return
        with _redis_errors_logged("kept"):
            evicted = self._put(keys=keys, args=[ref, data, self._most_bytes, self._ttl_ms, PREFIX])
            metrics.LARGE_RESULT_EVENTS.count("evicted", by=evicted)

    def get(self, ref: str, *, most_bytes: int) -> bytes | None:
        """The bytes, which become those used last; None if they are not here."""
        keys = [_key(ref), INDEX]
        if not self._most_bytes:
            return None
        found: bytes | None = None
        with _redis_errors_logged("read"):
            found = self._get(keys=keys, args=[ref, self._ttl_ms])
            metrics.LARGE_RESULT_EVENTS.count("memory_misses" if found is None else "memory_hits")
        return None if found is None else found[: most_bytes + 1]

    def drop(self, refs: Iterable[str]) -> None:
        gone = list(refs)
        if gone:
            with _redis_errors_logged("dropped"):
                self._drop(keys=[INDEX, TOTAL, *map(_key, gone)], args=gone)

    def usage(self) -> MemoryUsage:
        """How much is stored here.

        Raises:
            Unavailable: Redis did not answer.
        """
        with translate_redis_errors():
            return MemoryUsage(int(self._redis.zcard(INDEX)), int(self._redis.get(TOTAL) or 0))


@contextmanager
def _redis_errors_logged(what: str) -> Iterator[None]:
    try:
        yield
    except client.RedisError as error:
        log.warning("not %s in memory: %s", what, error)


def _key(ref: str) -> str:
    digits(ref)
    return PREFIX + ref


def _source(name: str) -> str:
    return files("loom_worker.blobs").joinpath(f"memory_{name}.lua").read_text(encoding="utf-8")
