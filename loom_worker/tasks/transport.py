"""kombu's Redis transport, with six repairs.

A channel that closes without a connection must not end the worker: kombu 5.7.0 raises AttributeError there, and a
worker with an unacknowledged message exits with status 1 when Redis restarts (8 of 8 runs; 5.6.2 did not). The
messages stay in ``unacked`` and come back after the visibility timeout; our own sweep wakes their lanes long before.

Neither may one that is asked to acknowledge after it was closed: a task that outlives its connection does so, kombu
raises AttributeError again, and the worker exits. As the error of a lost connection it is logged, and that is all.

A Redis that refuses to write (its disk is full) is a reason to connect anew later, and none to end: its MISCONF is no
connection error for kombu.

Such a Redis also refuses what acknowledges a message, and kombu then keeps the slot of that message for ever: a worker
that has lost all its slots so takes nothing more and never learns of it. The slot is given back here; the message comes
back after the visibility timeout.

A channel makes its client once: kombu 5.7.0 makes a new one for every command, and filling its table of 300 callbacks
took a fifth of a busy worker's time.

A malformed message is dropped, counted and logged by its tag (incoming.py): kombu and Celery raise what they meet in
it, the worker exits, and the next one takes the next such message.
"""

import logging
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import Any, ClassVar

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES, redis
from redis.exceptions import ResponseError

from loom_worker.core import metrics
from loom_worker.tasks import incoming
from loom_worker.tasks.incoming import BadMessage

log = logging.getLogger(__name__)

QUEUES = ("turn", "tool", "judge", "workflow", "webhook", "summary", "trace")
"""Every queue there is; a task's queue is the second word of its name."""
OTHER_QUEUE = "control"
"""What the others are counted under: those over which processes of Celery speak with each other."""


def _text(data: bytes | str) -> str:
    return data if isinstance(data, str) else data.decode()


class QoS(redis.QoS):
    """Frees the slot of a message also if Redis does not take the acknowledgement."""

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge."""
        try:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]  # kombu has no annotations
        finally:
            self._quick_ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Refuse, and put back into the queue if requested."""
        try:
            super().reject(delivery_tag, requeue=requeue)  # type: ignore[no-untyped-call]  # see above
        finally:
            self._quick_ack(delivery_tag)

    def restore_by_tag(self, tag: str, client: Any = None, leftmost: bool = False) -> None:
        """Put an unacknowledged message back into its queue; one that cannot be read is dropped.

        A worker does this as it starts, and would not come up; and no message behind it would come back either.
        """
        try:
            super().restore_by_tag(tag, client=client, leftmost=leftmost)  # type: ignore[no-untyped-call]  # see above
        except self.channel.connection_errors:
            raise
        except Exception as error:  # whatever kombu raises of what a stranger wrote
            self._remove_from_indices(tag).execute()  # type: ignore[no-untyped-call]  # see above
            self.channel.dropped(OTHER_QUEUE, incoming.printable(tag), type(error).__name__)


class Channel(redis.Channel):
    """A channel whose close does not need its connection, that keeps its client and drops malformed messages."""

    QoS = QoS
    _kept: Any = None

    def close(self) -> None:
        """Close; without a connection nothing is restored."""
        if self.connection is None or self.connection.client is None:
            self.do_restore = False
        super().close()  # type: ignore[no-untyped-call]  # kombu has no annotations

    def basic_consume(self, queue: str, *args: Any, **options: Any) -> Any:
        """Consume; what comes is checked before anybody else sees it."""
        tag = super().basic_consume(queue, *args, **options)  # type: ignore[no-untyped-call]  # kombu has no annotations
        callbacks = self.connection._callbacks
        callbacks[queue] = partial(self._deliver_checked, queue, callbacks[queue])
        return tag

    def _deliver_checked(self, queue: str, deliver: Callable[[Any], object], envelope: Any) -> None:
        try:
            self._check(queue, envelope)
            deliver(envelope)
        except BadMessage as error:
            self.dropped(queue, incoming.label(envelope), str(error))
        except (*self.connection_errors, *self.connection.channel_errors):
            raise
        except Exception as error:  # Celery's consumer has no top of its own, and would end the worker
            self.dropped(queue, incoming.label(envelope), f"{type(error).__name__} at its delivery")
            self.qos.reject(envelope["properties"]["delivery_tag"])

    def _check(self, queue: str, envelope: Any) -> None:
        if not isinstance(envelope, dict):
            raise BadMessage("not an object")
        content = incoming.check_envelope(envelope)
        app = self.connection.app
        if app is not None and queue in QUEUES:
            incoming.check_task(envelope, content, app.tasks)

    def _brpop_read(self, **options: Any) -> bool:
        """Take what BRPOP answered; kombu's own raises what it finds in a message that is not JSON.

        Raises:
            Empty: there was nothing.
        """
        try:
            answer = self._brpop_answer(**options)
            if not answer:
                raise Empty
            queue = _text(answer[0]).rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            self._deliver_bytes(queue, answer[1])
            return True
        finally:
            self._in_poll: Any = None
            self._flush_brpop_reauth()  # type: ignore[no-untyped-call]  # kombu has no annotations

    def _brpop_answer(self, **options: Any) -> Any:
        connection = self.client.connection
        try:
            return self.client.parse_response(connection, "BRPOP", **options)
        except self.connection_errors:
            connection.disconnect()  # so that the next try connects anew
            raise

    def _deliver_bytes(self, queue: str, data: bytes) -> None:
        try:
            if queue in QUEUES and len(data) > incoming.LARGEST_BYTES:
                raise BadMessage(f"{len(data)} bytes")
            envelope = incoming.read(data)
        except BadMessage as error:
            self.dropped(queue, incoming.label(None), str(error))
            return
        self.connection._deliver(envelope, queue)

    def _handle_message(self, client: Any, response: Any) -> Any:
        """What came over a Redis channel (remote control, events); without content if that is malformed."""
        payload = super()._handle_message(client, response)  # type: ignore[no-untyped-call]  # kombu has no annotations
        if _text(payload["type"]).endswith("message") and payload["data"]:
            try:
                incoming.read(payload["data"])
            except BadMessage as error:
                self.dropped(OTHER_QUEUE, incoming.label(None), str(error))
                payload["data"] = None
        return payload

    def dropped(self, queue: str, label: str, why: str) -> None:
        """Count and log a message that is not delivered."""
        queue = queue if queue in QUEUES else OTHER_QUEUE
        metrics.DROPPED_MESSAGES.count(queue)
        log.warning("dropped a malformed message of the queue %s, delivery tag %s: %s", queue, label, why)

    def _create_client(self, asynchronous: bool = False) -> Any:
        """The client of this channel's pool. It holds no connection of its own, so threads may share it."""
        if asynchronous:  # the ones that block, for BRPOP and for listening, do hold one
            return super()._create_client(asynchronous=True)  # type: ignore[no-untyped-call]  # see above
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = super()._create_client()  # type: ignore[no-untyped-call]  # see above
        return self._kept

    def _connparams(self, asynchronous: bool = False) -> Any:
        """How to connect; ConnectionError: the channel is closed."""
        if self.connection is None or self.connection.client is None:
            raise ConnectionError("The channel was closed with its connection.")
        found = super()._connparams(asynchronous=asynchronous)  # type: ignore[no-untyped-call]  # see above
        # For a socket, kombu looks for it in the URL alone.
        return {**found, "password": found["password"] or self.connection.client.password}


class Transport(redis.Transport):
    """The transport with that channel."""

    Channel = Channel
    app: ClassVar[Celery | None] = None
    """Whose tasks the messages of QUEUES must call; None: any."""
    connection_errors = (*redis.Transport.connection_errors, ResponseError)


def install(app: Celery | None = None) -> None:
    """Let every redis URL of kombu's use it.

    Args:
        app: whose tasks may be called by messages of Loom's queues; None: they are not looked at so closely.
    """
    Transport.app = app
    for scheme in ("redis", "rediss", "redis+socket"):
        TRANSPORT_ALIASES[scheme] = "loom_worker.tasks.transport:Transport"
