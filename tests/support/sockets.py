"""Thousands of raw client sockets: idle ones, and ones that drip."""

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TCP_ESTABLISHED = 1
"""Linux, include/net/tcp_states.h."""


class Sockets:
    """Connections of one source address to a port on 127.0.0.1, none of which is ever waited for."""

    def __init__(self, port: int, source: str, receive_bytes: int | None) -> None:
        self._port, self._source, self._receive_bytes = port, source, receive_bytes
        self.made: list[socket.socket] = []

    def open(self, count: int, first: bytes = b"") -> None:
        """Connect, and send the first bytes on each."""
        for _ in range(count):
            made = socket.socket()
            self.made.append(made)
            if self._receive_bytes is not None:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
            made.settimeout(10)
            made.bind((self._source, 0))
            made.connect(("127.0.0.1", self._port))
            made.setblocking(False)
            self._send(made, first)

    def drip(self, data: bytes = b"x") -> None:
        """Send a little on each; the server may have closed it."""
        for made in self.made:
            self._send(made, data)

    def closed(self) -> int:
        """How many the server has closed."""
        return sum(map(_is_closed, self.made))

    def reset(self) -> int:
        """How many the server has cut with answers still under way, which stay unread."""
        return sum(made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0 or _is_cut(made) for made in self.made)

    def close(self) -> None:
        for made in self.made:
            made.close()

    def _send(self, made: socket.socket, data: bytes) -> None:
        with suppress(OSError):
            made.send(data)


def raise_descriptor_limit() -> None:
    """Let this process have as many files as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def sockets(port: int, source: str = "127.0.0.1", receive_bytes: int | None = None) -> Iterator[Sockets]:
    """Sockets that are closed at the end; this process may then have as many as the system lets it."""
    raise_descriptor_limit()
    made = Sockets(port, source, receive_bytes)
    try:
        yield made
    finally:
        made.close()


def _is_closed(made: socket.socket) -> bool:
    try:
        return made.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _is_cut(made: socket.socket) -> bool:
    """By the system's state of the connection: to read would be to take what nobody shall take."""
    return made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_ESTABLISHED
