"""kombu's Redis transport, with five repairs.

A channel that closes without a connection must not end the worker: kombu 5.7.0 raises AttributeError there, and a
worker with an unacknowledged message exits with status 1 when Redis restarts (8 of 8 runs; 5.6.2 did not). The
messages stay in ``unacked`` and come back after the visibility timeout; our own sweep rings their lanes long before.

Neither may one that is asked to acknowledge after it was closed: a task that outlives its connection does so, kombu
raises AttributeError again, and the worker exits. As the error of a lost connection it is logged, and that is all.

A Redis that refuses to write (its disk is full) is a reason to connect anew later, and none to end: its MISCONF is no
connection error for kombu.

Such a Redis also refuses what acknowledges a message, and kombu then keeps the slot of that message for ever: a worker
that has lost all its slots so takes nothing more and never learns of it. The slot is given back here; the message comes
back after the visibility timeout.

A channel makes its client once: kombu 5.7.0 makes a new one for every command, and filling its table of 300 callbacks
took a fifth of a busy worker's time.
"""

from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis
from redis.exceptions import ResponseError


class QoS(redis.QoS):
    """Frees the slot of a message also if Redis does not take the acknowledgement."""

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge."""
        try:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]  # kombu has no annotations
        finally:
            self._quick_ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Refuse, and put back into the queue if that is wished."""
        try:
            super().reject(delivery_tag, requeue=requeue)  # type: ignore[no-untyped-call]  # see above
        finally:
            self._quick_ack(delivery_tag)


class Channel(redis.Channel):
    """A channel whose close does not need its connection, and that keeps its client."""

    QoS = QoS
    _kept: Any = None

    def close(self) -> None:
        """Close; without a connection nothing is restored."""
        if self.connection is None or self.connection.client is None:
            self.do_restore = False
        super().close()  # type: ignore[no-untyped-call]  # kombu has no annotations

    def _create_client(self, asynchronous: bool = False) -> Any:
        """The client of this channel's pool. It holds no connection of its own, so threads may share it."""
        if asynchronous:  # the ones that block, for BRPOP and for listening, do hold one
            return super()._create_client(asynchronous=True)  # type: ignore[no-untyped-call]  # see above
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = super()._create_client()  # type: ignore[no-untyped-call]  # see above
        return self._kept

    def _connparams(self, asynchronous: bool = False) -> Any:
        """How to connect.

        Raises:
            ConnectionError: the channel is closed.
        """
        if self.connection is None or self.connection.client is None:
            raise ConnectionError("The channel was closed with its connection.")
        return super()._connparams(asynchronous=asynchronous)  # type: ignore[no-untyped-call]  # see above


class Transport(redis.Transport):
    """The transport with that channel."""

    Channel = Channel
    connection_errors = (*redis.Transport.connection_errors, ResponseError)


def install() -> None:
    """Let every redis URL of kombu's use it."""
    for scheme in ("redis", "rediss", "redis+socket"):
        TRANSPORT_ALIASES[scheme] = "loom_worker.tasks.transport:Transport"
