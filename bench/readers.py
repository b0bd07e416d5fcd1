"""Read event streams until standard input ends: `python -m bench.readers PORT`, a JSON list of paths in the first line.

A process of its own, so that it takes no time of the one that writes. Says how many got which status once all were
answered, and in the end how late the events came. An event's text is the moment at which it was written, by the clock
that all processes of a machine share.
"""

import json
import re
import selectors
import socket
import sys
import time
from collections import Counter

from tests.support.sockets import raise_descriptor_limit

PATIENCE_S = 60.0
TOLD = re.compile(rb'"text":"(\d+)"')


def main() -> None:
    """Open all streams, say how they were answered, then read."""
    port, paths = int(sys.argv[1]), json.loads(sys.stdin.readline())
    raise_descriptor_limit()
    selector = selectors.DefaultSelector()
    statuses = _open(selector, port, paths)
    print(json.dumps(statuses), flush=True)
    print(json.dumps(_late_ms(selector)), flush=True)


def _open(selector: selectors.BaseSelector, port: int, paths: list[str]) -> Counter[str]:
    """Ask for every path at once; how often each status came."""
    for path in paths:
        made = socket.create_connection(("127.0.0.1", port))
        made.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        made.setblocking(False)
        selector.register(made, selectors.EVENT_READ)
    statuses: Counter[str] = Counter()
    answered: set[int] = set()
    until_s = time.monotonic() + PATIENCE_S
    while len(answered) < len(paths) and time.monotonic() < until_s:
        for key, _ in selector.select(1.0):
            head = _taken(selector, key)
            if key.fd not in answered:
                answered.add(key.fd)
                statuses[head[9:12].decode() or "closed"] += 1
    statuses["none"] += len(paths) - len(answered)
    return +statuses


def _late_ms(selector: selectors.BaseSelector) -> list[float]:
    """How long each event was under way, until standard input ends."""
    selector.register(sys.stdin, selectors.EVENT_READ)
    late_ms = []
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return late_ms
            found = TOLD.findall(_taken(selector, key))
            now_ns = time.monotonic_ns()
            late_ms += [(now_ns - int(written_ns)) / 1e6 for written_ns in found]


def _taken(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> bytes:
    made = key.fileobj
    assert isinstance(made, socket.socket)
    data = made.recv(65536)
    if not data:
        selector.unregister(made)
        made.close()
    return data


if __name__ == "__main__":
    main()
