"""Stands before a PostgreSQL and counts how often a client waits for it: `with CountingProxy(port) as proxy: …`."""

import socket
import threading
from contextlib import suppress

_ASKS = frozenset(b"QSH")
"""Query, Sync and Flush: only behind them a client waits, once if they stand side by side."""
_PROTOCOL_3 = (3 << 16).to_bytes(4, "big")


class CountingProxy:
    """Passes bytes on. A round trip is what the server has to answer before the client says more."""

    def __init__(self, target: int) -> None:
        self.trips = 0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = [self._listener]

    def __enter__(self) -> "CountingProxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass_on, args=(client, server, _Messages()), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(server, client, None), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, messages: "_Messages | None") -> None:
        with suppress(OSError):
            while sent := source.recv(65_536):
                if messages is not None:
                    self.trips += messages.asking(sent)
                target.sendall(sent)


class _Messages:
    """What a client says, byte by byte."""

    def __init__(self) -> None:
        self._held = b""
        self._has_begun = False
        self._has_asked = False

    def asking(self, sent: bytes) -> int:
        """How often a client waits, by the messages that end in these bytes."""
        self._held += sent
        found = 0
        while len(self._held) >= 5:
            kind = self._held[: 1 if self._has_begun else 0]  # the first messages of a session have none
            size = len(kind) + int.from_bytes(self._held[len(kind) : len(kind) + 4], "big")
            if len(self._held) < size:
                break
            asks = not kind or kind[0] in _ASKS
            found += asks and not self._has_asked
            self._has_asked = asks
            self._has_begun = self._has_begun or self._held[4:8] == _PROTOCOL_3
            self._held = self._held[size:]
        return found
