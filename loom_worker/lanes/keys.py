"""The names of all keys of a lane. Each can be lost at any time and is rebuilt from the database."""

PREFIX = "loom:"

LEASES = PREFIX + "leases"
"""Sorted set: lane to the deadline of its lease in ms; the sweep's only index."""

WORKERS = PREFIX + "workers"
"""Sorted set: worker to its last heartbeat in ms."""

UNANSWERED = PREFIX + "unanswered"
"""String: since when, in ms of Redis' clock, the longest unanswered wake-up is; gone when it is answered."""

BORN = PREFIX + "born"
"""String: since when this Redis has kept our keys, in ms; young after a loss."""

WAKEUPS = PREFIX + "q:turn"
"""List: the wake-ups that no worker has taken yet. It is Celery's queue ``turn``; we only look whether it is empty."""

PULSE = PREFIX + "pulse"
"""String: when, in ms of Redis' clock, a heartbeat or a sweep last came."""

GRACE = PREFIX + "grace"
"""String: Redis stood still a moment ago; there for twice a lease, of which the first half spares leases."""

SWEEP = PREFIX + "sweep"
"""String: the lock of the sweep."""


def worker(name: str) -> str:
    """Hash: what a worker says of itself with each heartbeat; it expires when the heartbeats stop."""
    return f"{PREFIX}worker:{name}"


def sent(what: str) -> str:
    """String: the sweep has sent this delivery, or this lane's compression, a moment ago."""
    return f"{PREFIX}sent:{what}"


def lane(key: str) -> str:
    """Sorted set: turn ids of a session, scored by seq; absent when empty."""
    return f"{PREFIX}lane:{key}"


def lease(key: str) -> str:
    """Hash: state kicked, running or parked, and its token; absent when the lane is idle."""
    return f"{PREFIX}lease:{key}"


def waiting(turn_id: str) -> str:
    """String: the call of the model that a turn waits for, by the turn's owner; gone soon after that falls silent."""
    return f"{PREFIX}waiting:{turn_id}"


def late(turn_id: str, reply_n: int) -> str:
    """String: the log has said that the tool calls of a turn's reply take long."""
    return f"{PREFIX}late:{turn_id}:{reply_n}"
