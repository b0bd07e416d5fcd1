"""Name servers."""

import socket
from typing import Any

from loom_worker.guard.net.address import Lookup


def names(*addresses: str) -> Lookup:
    """A name server that knows one answer."""

    def lookup(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return lookup
