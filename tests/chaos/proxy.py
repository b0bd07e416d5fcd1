"""Stands before the broker: `python -m tests.chaos.proxy LISTEN CONNECT` (two Unix sockets).

SIGUSR1: from now on every byte, of old connections and new ones, is taken and dropped. SIGUSR2: it is over; connections
that lost bytes are closed.
"""

import asyncio
import contextlib
import os
import signal
import sys


class Proxy:
    """All connections, and whether bytes are dropped."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.is_swallowing = False
        self.open: set[Side] = set()

    def swallow(self) -> None:
        self.is_swallowing = True

    def relent(self) -> None:
        self.is_swallowing = False
        for side in [side for side in self.open if side.has_lost]:
            side.close()


class Side(asyncio.Protocol):
    """One end of a connection; writes what it reads to its peer."""

    def __init__(self, proxy: Proxy, peer: "Side | None" = None) -> None:
        self.proxy = proxy
        self.peer = peer
        self.transport: asyncio.Transport | None = None
        self.waiting: list[bytes] = []
        self.has_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.proxy.open.add(self)
        if self.peer is None:
            self.task = asyncio.get_running_loop().create_task(self._dial())
            return
        self.peer.peer = self
        for data in self.peer.waiting:
            transport.write(data)

    async def _dial(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: Side(self.proxy, self), self.proxy.target)
        except OSError:
            self.close()

    def data_received(self, data: bytes) -> None:
        if self.proxy.is_swallowing:
            self.has_lost = True
        elif self.peer is None or self.peer.transport is None:
            self.waiting.append(data)
        else:
            self.peer.transport.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self.proxy.open.discard(self)
        if self.peer is not None:
            self.peer.close()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()


async def serve(listen: str, connect: str) -> None:
    """Serve until killed."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(listen)
    proxy, loop = Proxy(connect), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, proxy.swallow)
    loop.add_signal_handler(signal.SIGUSR2, proxy.relent)
    server = await loop.create_unix_server(lambda: Side(proxy), listen)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
