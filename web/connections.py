"""Which connections there are, what each is doing, and which one goes when there are too many.

No sockets and no clock here: ``loop`` reports what happens, and drops what this says. Connections of one address are
counted together, as an attack mostly comes from few; an address over its share loses its idlest one rather than its
newest, so that an honest client behind the same address still gets in.
"""

import enum
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any, Protocol


class Stage(enum.IntEnum):
    """What a connection does; the lower, the less is lost with it."""

    IDLE = 0
    """No byte of a request has come since the last answer."""
    HEAD = 1
    """A request's head comes in."""
    BODY = 2
    """A request's body comes in."""
    ANSWER = 3
    """An answer waits to be taken; nothing runs any more."""
    RUNNING = 4
    """A request runs or waits for a thread; never dropped to make room."""


IDLE_S = 120.0
"""An idle connection is closed after this long; the default of waitress' ``channel_timeout``."""
HEAD_S = 10.0
"""From a head's first byte to its end, whatever comes in between. nginx allows 60 s, Apache 20 s."""
BODY_GRACE_S = 10.0
"""A body may be slower than BODY_BYTES_S for so long."""
BODY_BYTES_S = 8 * 1024
"""The least average rate of a body; 64 kbit/s."""
BODY_S = 150.0
"""From a head's end to its body's end: 1 MiB at BODY_BYTES_S takes 138 s with the grace."""
STUCK_S = 30.0
"""A client that takes no byte of a waiting answer for so long is dropped, and its thread freed."""
READ_GRACE_S = 60.0
"""After this an answer must have been taken at READ_BYTES_S on average."""
READ_BYTES_S = 8 * 1024
"""The least average rate at which an answer is taken while some of it waits."""
MAX_BODIES = 256
"""Bodies that may come in at once, 1 MiB each in memory; one address may send a quarter of them."""
MAX_UNSENT_BYTES = 256 * 1024 * 1024
"""Of answers that wait to be taken, over all connections; those that wait longest go first."""
SHARE = 4
"""One address may hold one part in so many."""


class ClientConnection(Protocol):
    """What must be known of a connection to tell whether it is too slow."""

    @property
    def received_bytes(self) -> int:
        """Of the body that comes in."""

    @property
    def unsent_bytes(self) -> int:
        """Of answers, not yet taken."""

    @property
    def taken_bytes(self) -> int:
        """Of answers, since some of them began to wait."""

    @property
    def taken_s(self) -> float:
        """When a byte was taken last, by the clock of ``Connections``."""

    @property
    def waits_since_s(self) -> float | None:
        """Since when some of an answer waits to be taken; None if nothing does."""


@dataclass(slots=True)
class _Entry:
    group: str
    stage: Stage
    since_s: float


class _Crowd:
    """Connections by stage with the moment they entered it, the first one first."""

    def __init__(self) -> None:
        self.stages: tuple[OrderedDict[ClientConnection, float], ...] = tuple(OrderedDict() for _ in Stage)
        self.count = 0

    def add(self, connection: ClientConnection, entry: _Entry) -> None:
        self.stages[entry.stage][connection] = entry.since_s
        self.count += 1

    def remove(self, connection: ClientConnection, entry: _Entry) -> None:
        del self.stages[entry.stage][connection]
        self.count -= 1

    def idlest(self) -> ClientConnection | None:
        """The one that is missed least; None if a request runs on each.

        Of idle ones and heads the one that is so for longest: were all idle ones to go first, a stranger's slow heads
        would push out a connection that was accepted a moment ago and whose request is still in the system's buffer.
        """
        firsts = [next(iter(stage.items())) for stage in self.stages[: Stage.BODY] if stage]
        if firsts:
            return min(firsts, key=lambda first: first[1])[0]
        return next((next(iter(stage)) for stage in self.stages[Stage.BODY : Stage.RUNNING] if stage), None)

    def oldest(self, stage: Stage) -> ClientConnection:
        return next(iter(self.stages[stage]))


class Connections:
    """All connections of a server; used by its loop's thread alone.

    There may be ``limit`` of them, ``share`` from one address.

    Args:
        limit: how many there may be.
        has_shares: False behind proxies, as theirs are then the only addresses there are.
    """

    def __init__(self, *, limit: int, has_shares: bool) -> None:
        self.limit = limit
        self.share = max(1, limit // SHARE) if has_shares else limit
        self._bodies_share = MAX_BODIES // SHARE if has_shares else MAX_BODIES
        self._entries: dict[ClientConnection, _Entry] = {}
        self._all = _Crowd()
        self._groups: dict[str, _Crowd] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def are_running(self) -> bool:
        """True while a request runs, or waits, on any."""
        return bool(self._all.stages[Stage.RUNNING])

    def readers(self) -> list[Any]:
        """Connections that may have an answer to take."""
        return [each for stage in (Stage.ANSWER, Stage.RUNNING) for each in self._all.stages[stage]]

    def over_limit(self, address: str) -> tuple[bool, ClientConnection | None]:
        """Whether a further connection from an address is one too many, and which one can go for it, if any."""
        crowd = self._groups.get(group_of(address))
        if crowd is not None and crowd.count >= self.share:
            return True, crowd.idlest()
        if self._all.count >= self.limit:
            return True, self._all.idlest()
        return False, None

    def idlest(self) -> ClientConnection | None:
        """The connection that is missed least; None if a request runs on each."""
        return self._all.idlest()

    def add(self, connection: ClientConnection, address: str, now_s: float) -> None:
        """A connection was accepted."""
        entry = _Entry(group_of(address), Stage.IDLE, now_s)
        self._entries[connection] = entry
        self._all.add(connection, entry)
        self._groups.setdefault(entry.group, _Crowd()).add(connection, entry)

    def remove(self, connection: ClientConnection) -> None:
        """A connection was closed; nothing happens if it is not there."""
        entry = self._entries.pop(connection, None)
        if entry is None:
            return
        self._all.remove(connection, entry)
        crowd = self._groups[entry.group]
        crowd.remove(connection, entry)
        if not crowd.count:
            del self._groups[entry.group]

    def move(self, connection: ClientConnection, stage: Stage, now_s: float) -> ClientConnection | None:
        """A connection is at this stage now; returns one to drop if too many send bodies.

        Empty lines before a head do not make the connection idle again, or they would keep it for ever.
        """
        entry = self._entries.get(connection)
        if entry is None or entry.stage is stage or (entry.stage is Stage.HEAD and stage is Stage.IDLE):
            return None
        crowd = self._groups[entry.group]
        self._all.remove(connection, entry)
        crowd.remove(connection, entry)
        entry.stage, entry.since_s = stage, now_s
        self._all.add(connection, entry)
        crowd.add(connection, entry)
        if stage is not Stage.BODY:
            return None
        if len(crowd.stages[stage]) > self._bodies_share:
            return crowd.oldest(stage)
        return self._all.oldest(stage) if len(self._all.stages[stage]) > MAX_BODIES else None

    def overdue(self, now_s: float) -> list[ClientConnection]:
        """Connections whose time is over: idle ones, slow heads and bodies, and answers that nobody takes."""
        late = [
            *self._waiting_longer(Stage.IDLE, now_s - IDLE_S),
            *self._waiting_longer(Stage.HEAD, now_s - HEAD_S),
            *(each for each in self._all.stages[Stage.BODY] if self._is_late_body(each, now_s)),
        ]
        readers = [each for stage in (Stage.ANSWER, Stage.RUNNING) for each in self._all.stages[stage]]
        return [*late, *_slow_readers(readers, now_s)]

    def _waiting_longer(self, stage: Stage, since_s: float) -> Iterator[ClientConnection]:
        for connection, entered_s in self._all.stages[stage].items():
            if entered_s >= since_s:
                return
            yield connection

    def _is_late_body(self, connection: ClientConnection, now_s: float) -> bool:
        age_s = now_s - self._entries[connection].since_s
        return age_s > BODY_S or connection.received_bytes < (age_s - BODY_GRACE_S) * BODY_BYTES_S


def _slow_readers(readers: list[ClientConnection], now_s: float) -> list[ClientConnection]:
    """Those that take nothing or too little, and the ones beyond MAX_UNSENT_BYTES."""
    waiting = [(each, each.waits_since_s) for each in readers if each.waits_since_s is not None]
    waiting.sort(key=lambda pair: pair[0].taken_s)
    unsent_bytes = sum(each.unsent_bytes for each, _ in waiting)
    slow = []
    for each, since_s in waiting:
        age_s = now_s - since_s
        is_slow = now_s - each.taken_s > STUCK_S or each.taken_bytes < (age_s - READ_GRACE_S) * READ_BYTES_S
        if is_slow or unsent_bytes > MAX_UNSENT_BYTES:
            unsent_bytes -= each.unsent_bytes
            slow.append(each)
    return slow


def group_of(address: str) -> str:
    """The address, or of IPv6 its /64: that is what a single customer gets, 2**64 addresses."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address  # What a proxy wrote.
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Address(int(found) >> 64 << 64))
