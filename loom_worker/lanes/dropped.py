"""How many messages were dropped because they were malformed, by queue, since Redis began."""

from typing import Any

from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.lanes.keys import PREFIX

KEY = PREFIX + "dropped_messages"
"""Hash: queue to count."""


def count(redis: Any, queue: str) -> None:
    """Add one.

    Raises:
        Unavailable: Redis did not answer.
    """
    with translate_redis_errors():
        redis.hincrby(KEY, queue, 1)


def counts(redis: Any) -> dict[str, int]:
    """Queue to count; only queues with any.

    Args:
        redis: a client that decodes responses.

    Raises:
        Unavailable: Redis did not answer.
    """
    with translate_redis_errors():
        return {queue: int(count) for queue, count in redis.hgetall(KEY).items()}
