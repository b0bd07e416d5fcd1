"""A Redis that refuses an acknowledgement, as one with a full disk does, costs the message's slot no longer."""

import pytest
import redis
from kombu import Connection
from redis.exceptions import ResponseError

from loom_worker.tasks import transport


@pytest.mark.parametrize("how", ["ack", "reject"])
def test_a_slot_is_given_back_also_if_redis_refuses_the_acknowledgement(valkey: redis.Redis, how: str) -> None:
    transport.install()
    path = valkey.connection_pool.connection_kwargs["path"]
    with Connection(f"redis+socket://{path}") as connection:  # type: ignore[no-untyped-call]  # kombu has no annotations
        channel = connection.channel()
        channel.qos.prefetch_count = 1
        queue = connection.SimpleQueue("slots", channel=channel)
        queue.put(["one"])
        message = queue.get(timeout=60)
        assert not channel.qos.can_consume()
        valkey.execute_command("ACL", "SETUSER", "default", "-zrem")
        try:
            with pytest.raises(ResponseError):
                getattr(message, how)()
        finally:
            valkey.execute_command("ACL", "SETUSER", "default", "+zrem")
        assert channel.qos.can_consume()
