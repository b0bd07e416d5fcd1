"""Redis, as all rooms use it: a client with its timeouts, and its failures in our own words."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from loom_worker.core.errors import Unavailable

FULL = "Redis is full (maxmemory): it takes no writes until it has room; nothing that was accepted is lost meanwhile."
TIMEOUT_S = 5.0
"""A Redis that swallows bytes holds a caller no longer than this."""


def client(url: str, *, connections: int, wait_s: float = 0.0, decodes: bool = True) -> Any:
    """A client; nothing is connected yet.

    Args:
        connections: most of them at once; redis-py's own pool stops at 100.
        decodes: False: answers are bytes.
        wait_s: longest blocking read. redis-py's default timeout of 5 s would end a longer one.
    """
    # Not retried here, save once for a connection that Redis closed while it idled: the keeper, the sweep and the
    # writers each have their own next time.
    retry = Retry(NoBackoff(), 0 if wait_s else 1)
    return redis.Redis.from_url(
        url,
        decode_responses=decodes,
        socket_timeout=TIMEOUT_S + wait_s,
        socket_connect_timeout=TIMEOUT_S,
        max_connections=connections,
        retry=retry,
    )


def probe(client: Any) -> None:
    """Write a key that goes at once: a full Redis still answers questions.

    Raises:
        Unavailable: it did not answer, or is full.
    """
    with in_our_words():
        client.set("loom:probe", "", px=1_000)


@contextmanager
def in_our_words() -> Iterator[None]:
    """Raise Unavailable where redis-py raises its own."""
    try:
        yield
    except redis.exceptions.OutOfMemoryError as error:
        raise Unavailable(FULL, "storage-full") from error
    except redis.RedisError as error:
        raise Unavailable(f"Redis did not answer: {error}") from error
