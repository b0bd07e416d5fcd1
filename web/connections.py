"""Which connections there are, what each is doing, and which one goes when there are too many.

No sockets and no clock here. Connections of one address are counted together, as an attack mostly comes from few; an
address over its share loses its idlest one rather than its newest, so that an honest client behind it still gets in.
"""

import enum
import logging
from collections import Counter
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address

log = logging.getLogger("loom.web")

IDLE_S = 120.0  # an idle connection is closed after so long
HEAD_S = 10.0  # from a head's first byte to its end, whatever comes in between; nginx allows 60 s, Apache 20 s
BODY_GRACE_S = 10.0  # a body may be slower than BODY_BYTES_S for so long
BODY_BYTES_S = 8 * 1024  # the least average rate of a body; 64 kbit/s
STUCK_S = 30.0  # a client that takes no byte of a waiting answer for so long is dropped
READ_GRACE_S = 60.0  # after this an answer must have been taken at READ_BYTES_S on average
READ_BYTES_S = 8 * 1024
MAX_BODIES = 256  # bodies that may come in at once; one address may send a quarter of them
MAX_UNSENT_BYTES = 256 * 1024 * 1024  # of answers, over all connections; those that wait longest go first
REPORT_S = 60.0  # how often the log says what was dropped
SHARE = 4  # one address may hold one part in so many


class Stage(enum.IntEnum):
    """What a connection does; the lower, the less is lost with it.

    It waits for a head; a head, or a body, comes in; an answer waits to be taken; a request runs or waits for a
    thread, and is never dropped to make room.
    """

    IDLE = 0
    HEAD = 1
    BODY = 2
    ANSWER = 3
    RUNNING = 4


class Tracked:
    """A connection, as far as its time can be over. Times are in seconds of one clock."""

    group = ""
    stage = Stage.IDLE
    since_s = 0.0
    """Since when it is at its stage."""
    received_bytes = written_bytes = 0
    """Bytes of the body that comes in, and of all answers."""
    waits_since_s: float | None = None
    """Since when some of an answer waits to be taken."""
    taken_s = 0.0
    _taken_bytes = _taken_before = 0

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return 0

    def abort(self) -> None:
        """Close it at once."""

    def is_late(self, now_s: float) -> bool:
        """Whether its time is over; to be asked once a second."""
        age_s = now_s - self.since_s
        match self.stage:
            case Stage.IDLE | Stage.HEAD:
                return age_s > (HEAD_S if self.stage else IDLE_S)
            case Stage.BODY:
                return self.received_bytes < (age_s - BODY_GRACE_S) * BODY_BYTES_S
        return self._is_stuck(now_s)

    def _is_stuck(self, now_s: float) -> bool:
        taken_bytes = self.written_bytes - self.unsent_bytes
        if not self.unsent_bytes:
            self.waits_since_s = None
            return False
        if self.waits_since_s is None:
            self.waits_since_s, self._taken_before = now_s, taken_bytes
        if taken_bytes > self._taken_bytes or self.waits_since_s == now_s:
            self._taken_bytes, self.taken_s = taken_bytes, now_s
        least_bytes = (now_s - self.waits_since_s - READ_GRACE_S) * READ_BYTES_S
        return now_s - self.taken_s > STUCK_S or taken_bytes - self._taken_before < least_bytes


Crowd = dict[Tracked, None]
"""Connections, the one first that is at its stage for longest."""


class Connections:
    """All connections of a server, ``limit`` at most, ``share`` from one address; used by its loop's thread alone.

    Args:
        has_shares: False behind proxies, as theirs are then the only addresses there are.
    """

    def __init__(self, *, limit: int, has_shares: bool) -> None:
        self.limit = limit
        self.share = max(1, limit // SHARE) if has_shares else limit
        self._bodies_share = MAX_BODIES // SHARE if has_shares else MAX_BODIES
        self._all: Crowd = {}
        self._bodies: Crowd = {}
        self._groups: dict[str, Crowd] = {}
        self.dropped = Counter[str]()
        self._next_report_s = 0.0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def are_running(self) -> bool:
        """True while a request runs, or waits, on any."""
        return any(each.stage is Stage.RUNNING for each in tuple(self._all))

    def over_limit(self, address: str) -> tuple[bool, Tracked | None]:
        """Whether a further connection from an address is one too many, and which one can go for it, if any."""
        crowd = self._groups.get(group_of(address), {})
        if len(crowd) >= self.share:
            return True, _idlest(crowd)
        return (True, self.idlest()) if len(self) >= self.limit else (False, None)

    def idlest(self) -> Tracked | None:
        """The connection that is missed least; None if a request runs on each."""
        return _idlest(self._all)

    def add(self, connection: Tracked, address: str, now_s: float) -> None:
        connection.group, connection.since_s = group_of(address), now_s
        self._all[connection] = self._groups.setdefault(connection.group, {})[connection] = None

    def remove(self, connection: Tracked) -> None:
        """A connection was closed; nothing happens if it is not there."""
        if connection in self._all:
            crowd = self._groups[connection.group]
            del self._all[connection], crowd[connection]
            self._bodies.pop(connection, None)
            if not crowd:
                del self._groups[connection.group]

    def drop(self, connection: Tracked | None, why: str) -> None:
        """Cut a connection off, if any."""
        if connection is not None:
            self.dropped[why] += 1
            self.remove(connection)
            connection.abort()

    def report(self, now_s: float) -> None:
        """Say once a minute what was dropped, if anything was."""
        if self.dropped and now_s >= self._next_report_s:
            self._next_report_s = now_s + REPORT_S
            dropped = ", ".join(f"{count} ({why})" for why, count in self.dropped.items())
            log.warning("connections dropped: %s; %d are open", dropped, len(self))
            self.dropped.clear()

    def move(self, connection: Tracked, stage: Stage, now_s: float) -> Tracked | None:
        """A connection is at this stage now; returns one to drop if too many send bodies."""
        if stage is connection.stage or connection not in self._all:
            return None
        connection.stage, connection.since_s = stage, now_s
        for crowd in (self._all, self._groups[connection.group]):
            del crowd[connection]
            crowd[connection] = None
        self._bodies.pop(connection, None)
        if stage is not Stage.BODY:
            return None
        self._bodies[connection] = None
        own = [each for each in self._bodies if each.group == connection.group]
        if len(own) > self._bodies_share:
            return own[0]
        return next(iter(self._bodies)) if len(self._bodies) > MAX_BODIES else None

    def overdue(self, now_s: float) -> list[Tracked]:
        """Connections whose time is over, and those whose answers are too much for the memory there is."""
        late = {each: None for each in self._all if each.is_late(now_s)}
        readers = [each for each in self._all if each.waits_since_s is not None and each not in late]
        unsent_bytes = sum(each.unsent_bytes for each in readers)
        for each in sorted(readers, key=lambda reader: reader.taken_s):
            if unsent_bytes > MAX_UNSENT_BYTES:
                unsent_bytes -= each.unsent_bytes
                late[each] = None
        return list(late)


def _idlest(crowd: Iterable[Tracked]) -> Tracked | None:
    """The one that is missed least.

    Of idle ones and heads the one that is so for longest: were all idle ones to go first, a stranger's slow heads
    would push out a connection that was accepted a moment ago and whose request is still in the system's buffer.
    """
    for most in (Stage.HEAD, Stage.BODY, Stage.ANSWER):
        found = next((each for each in crowd if each.stage <= most), None)
        if found is not None:
            return found
    return None


def group_of(address: str) -> str:
    """The address, or of IPv6 its /64: that is what a single customer gets, 2**64 addresses."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address  # a proxy wrote it
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))
