"""A connection to an address that was checked, which cannot outlive its deadline."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue

from loom_worker.core.errors import LoomError, Transient
from loom_worker.guard.net.address import Lookup, Target, resolve

MAX_DIALLED = 4
"""Addresses tried in one attempt: a name with a thousand of them must not turn Loom into a port scanner."""


class Deadline:
    """The moment at which everything about one attempt must be over."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._ends_s = time.monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        """Seconds until then, at least a millisecond: a timeout of 0 means "do not wait" to sockets."""
        return max(self._ends_s - time.monotonic(), 0.001)

    @property
    def is_over(self) -> bool:
        """True from that moment on."""
        return time.monotonic() >= self._ends_s


def resolve_in_time(target: Target, deadline: Deadline, *, allow_private: bool, lookup: Lookup) -> tuple[str, ...]:
    """Resolve in a thread that is abandoned at the deadline: a lookup cannot be interrupted, slow servers take 30 s.

    Raises:
        Invalid, Transient: as address.resolve; Transient too at the deadline.
    """
    answers: SimpleQueue[tuple[str, ...] | LoomError] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(resolve(target.host, target.port, allow_private=allow_private, lookup=lookup))
        except LoomError as error:
            answers.put(error)

    threading.Thread(target=ask, name="loom-resolve", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline.left_s)
    except Empty as error:
        raise Transient("the name server did not answer in time") from error
    if isinstance(answer, LoomError):
        raise answer
    return answer


def dial(addresses: Sequence[str], port: int, deadline: Deadline) -> socket.socket:
    """Connect to the first address that accepts; each has an equal share of the time that is left.

    Raises:
        OSError: none did; the last one's reason.
    """
    tried = addresses[:MAX_DIALLED]
    for number, address in enumerate(tried, start=1):
        try:
            return socket.create_connection((address, port), timeout=deadline.left_s / (len(tried) - number + 1))
        except OSError:
            if number == len(tried):
                raise
    raise OSError("no address to connect to")


@contextlib.contextmanager
def cut_at(deadline: Deadline, sock: socket.socket) -> Iterator[None]:
    """Shut the connection down at the deadline, whatever it is doing.

    A socket's timeout applies to each read: a byte a second outlives it, in the TLS handshake as in the headers. A
    shutdown wakes the reader. It uses a second handle, since TLS takes over the first one.
    """
    handle = sock.dup()

    def shut() -> None:
        with contextlib.suppress(OSError):  # the receiver may have closed first
            handle.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(deadline.left_s, shut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        handle.close()
