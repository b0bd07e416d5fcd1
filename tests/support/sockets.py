"""Thousands of raw client sockets: idle ones, and ones that drip."""

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Sockets:
    """Connections of one source address to a port on 127.0.0.1, none of which is ever waited for."""

    def __init__(self, port: int, source: str) -> None:
        self._port, self._source = port, source
        self.made: list[socket.socket] = []

    def open(self, count: int, first: bytes = b"") -> None:
        """Connect, and send the first bytes on each."""
        for _ in range(count):
            made = socket.create_connection(("127.0.0.1", self._port), timeout=10, source_address=(self._source, 0))
            made.setblocking(False)
            self.made.append(made)
            self._send(made, first)

    def drip(self, data: bytes = b"x") -> None:
        """Send a little on each; the server may have closed it."""
        for made in self.made:
            self._send(made, data)

    def closed(self) -> int:
        """How many the server has closed."""
        return sum(map(_is_closed, self.made))

    def close(self) -> None:
        for made in self.made:
            made.close()

    def _send(self, made: socket.socket, data: bytes) -> None:
        with suppress(OSError):
            made.send(data)


@contextmanager
def sockets(port: int, source: str = "127.0.0.1") -> Iterator[Sockets]:
    """Sockets that are closed at the end; this process may then have as many as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = Sockets(port, source)
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
