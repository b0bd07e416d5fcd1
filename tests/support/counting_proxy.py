"""Stands before a server and counts how often a client waits for it: `with CountingProxy(port) as proxy: …`."""

import socket
import threading
from contextlib import suppress


class CountingProxy:
    """Passes bytes on. A round trip is an answer to what a client has sent since the last one."""

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
                asked = threading.Event()
                for ends in ((client, server, asked, True), (server, client, asked, False)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, asked: threading.Event, is_client: bool) -> None:
        with suppress(OSError):
            while sent := source.recv(65_536):
                if is_client:
                    asked.set()
                elif asked.is_set():
                    asked.clear()
                    self.trips += 1
                target.sendall(sent)
