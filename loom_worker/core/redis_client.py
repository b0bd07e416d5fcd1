"""The Redis client that every package uses: its timeouts, and redis-py's errors as ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from loom_worker.core.errors import Unavailable

FULL = "Redis is full (maxmemory): it takes no writes until it has room; nothing that was accepted is lost meanwhile."
TIMEOUT_S = 5.0
"""Longest a call may take: a Redis that accepts bytes and never answers holds a caller no longer."""
LOOK_S = 0.5
"""The same for those who only look, and are looked at within 2 s: each call is tried twice."""


def client(
    url: str, *, connections: int, wait_s: float = 0.0, decodes: bool = True, timeout_s: float = TIMEOUT_S
) -> Any:
    """Return a client; nothing is connected yet.

    Args:
        connections: most of them at once; redis-py's own pool stops at 100.
        wait_s: longest blocking read. redis-py's default timeout of 5 s would end a longer one.
        decodes: False: responses are bytes.
    """
    # Retried once only, for a connection that Redis closed while it was idle: the lease renewer, the sweep and the
    # writers each try again by themselves.
    retry = Retry(NoBackoff(), 0 if wait_s else 1)
    return redis.Redis.from_url(
        url,
        decode_responses=decodes,
        socket_timeout=timeout_s + wait_s,
        socket_connect_timeout=timeout_s,
        max_connections=connections,
        retry=retry,
    )


def probe(client: Any) -> None:
    """Write a key that expires at once: a full Redis still answers reads.

    Raises:
        Unavailable: Redis did not answer, or is full.
    """
    with translate_redis_errors():
        client.set("loom:probe", "", px=1_000)


@contextmanager
def translate_redis_errors() -> Iterator[None]:
    """Raise Unavailable where redis-py raises its own errors."""
    try:
        yield
    except redis.exceptions.OutOfMemoryError as error:
        raise Unavailable(FULL, "storage-full") from error
    except redis.RedisError as error:
        raise Unavailable(f"Redis did not answer: {error}") from error
