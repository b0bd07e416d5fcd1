"""The Redis client that every package uses: its timeouts, and redis-py's errors as ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis import asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from loom_worker.core.errors import Unavailable

FULL = "Redis is full (maxmemory): it takes no writes until it has room; nothing that was accepted is lost meanwhile."
TIMEOUT_S = 5.0
"""Longest a call may take: a Redis that accepts bytes and never answers holds a caller no longer."""
LOOK_S = 0.5
"""The same for those who only look, and are looked at within 2 s: each call is tried twice."""
_WHERE = ("path", "host", "port", "db", "username", "password")


def client(url: str, *, connections: int, decodes: bool = True, timeout_s: float = TIMEOUT_S) -> Any:
    """Return a client; nothing is connected yet.

    Args:
        connections: most of them at once; redis-py's own pool stops at 100.
        decodes: False: responses are bytes.
    """
    # Retried once only, for a connection that Redis closed while it was idle: the lease renewer, the sweep and the
    # writers each try again by themselves.
    return redis.Redis.from_url(
        url,
        decode_responses=decodes,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        max_connections=connections,
        retry=Retry(NoBackoff(), 1),
    )


def listening(client: Any) -> Any:
    """A client for coroutines that hear what is published on the server of another one; it decodes responses.

    It is for ``async with``; nothing is connected yet. A connection that is lost raises, so that whoever listens knows.
    A timeout is the caller's: redis-py's own would swallow a cancellation that comes while a command is sent (wait_for
    of Python 3.11 does).
    """
    given = client.get_connection_kwargs()
    used: dict[str, Any] = {name: value for name, value in given.items() if name in _WHERE or name.startswith("ssl_")}
    kind: Any = asyncio.Connection
    if "path" in given:
        kind = asyncio.UnixDomainSocketConnection
    elif issubclass(client.connection_pool.connection_class, redis.SSLConnection):
        kind = asyncio.SSLConnection
    used |= {"decode_responses": True, "socket_timeout": None, "retry": AsyncRetry(NoBackoff(), 0)}
    return asyncio.Redis.from_pool(asyncio.ConnectionPool(connection_class=kind, **used))


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
