"""Where tools that run in other processes meet the test: each says who it is, and waits to be told how to go on.

    with Meeting() as meeting:
        ...  # something calls a tool with meeting.port
        (guest,) = meeting.guests(1)
        guest.go_on("done")

So tools are known to run at the same time, and to have died, without a clock.
"""

import json
import select
import socket
from dataclasses import dataclass
from typing import Self

PATIENCE_S = 30.0


@dataclass(frozen=True)
class Guest:
    """A tool that waits."""

    name: str
    pid: int
    there: socket.socket

    def go_on(self, answer: str = "") -> None:
        """Let it return this."""
        self.there.sendall(f"{answer}\n".encode())
        self.there.close()

    def is_gone(self) -> bool:
        """True once its process has ended: nothing else hangs up."""
        ready, _, _ = select.select([self.there], [], [], PATIENCE_S)
        return bool(ready) and self.there.recv(1) == b""


class Meeting:
    """Listens on a port of its own, for ``with``."""

    def __init__(self) -> None:
        self._door = socket.create_server(("127.0.0.1", 0))
        self._door.settimeout(PATIENCE_S)
        self._guests: list[Guest] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for guest in self._guests:
            guest.there.close()
        self._door.close()

    @property
    def port(self) -> int:
        """What a tool takes as its ``port``."""
        return int(self._door.getsockname()[1])

    def guests(self, number: int) -> list[Guest]:
        """The next so many, in the order in which they came; TimeoutError if one does not come."""
        return [self._next() for _ in range(number)]

    def is_empty(self) -> bool:
        """True if nobody else has come so far."""
        return not select.select([self._door], [], [], 0)[0]

    def _next(self) -> Guest:
        there, _ = self._door.accept()
        there.settimeout(PATIENCE_S)
        with there.makefile() as lines:
            told = json.loads(lines.readline())
        guest = Guest(told["name"], told["pid"], there)
        self._guests.append(guest)
        return guest
