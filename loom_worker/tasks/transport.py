"""kombu's Redis transport, repaired: a channel that closes without a connection must not end the worker.

kombu 5.7.0 raises AttributeError there, and a worker with an unacknowledged message exits with status 1 when Redis
restarts (8 of 8 runs; 5.6.2 did not). The messages stay in ``unacked`` and come back after the visibility timeout;
our own sweep rings their lanes long before.
"""

from kombu.transport import TRANSPORT_ALIASES, redis


class Channel(redis.Channel):
    """A channel whose close does not need its connection."""

    def close(self) -> None:
        """Close; without a connection nothing is restored."""
        if self.connection is None or self.connection.client is None:
            self.do_restore = False
        super().close()  # type: ignore[no-untyped-call]  # kombu has no annotations


class Transport(redis.Transport):
    """The transport with that channel."""

    Channel = Channel


def install() -> None:
    """Let every redis URL of kombu's use it."""
    for scheme in ("redis", "rediss", "redis+socket"):
        TRANSPORT_ALIASES[scheme] = "loom_worker.tasks.transport:Transport"
