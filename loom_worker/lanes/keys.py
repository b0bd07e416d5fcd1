"""The names of all keys of a lane. Each can be lost at any time and is rebuilt from the database."""

PREFIX = "loom:"

LEASES = PREFIX + "leases"
"""Sorted set: lane to the deadline of its lease in ms; the sweep's only index."""

WORKERS = PREFIX + "workers"
"""Sorted set: worker to its last heartbeat in ms."""

TURN_WORKERS = PREFIX + "workers:turn"
"""Sorted set: those of them that take turns; without one nothing is answered."""

BORN = PREFIX + "born"
"""String: since when this Redis has kept our keys, in ms; young after a loss."""

SWEEP = PREFIX + "sweep"
"""String: the lock of the sweep."""


def sent(delivery_id: str) -> str:
    """String: the sweep has sent this delivery a moment ago."""
    return f"{PREFIX}sent:{delivery_id}"


def lane(key: str) -> str:
    """Sorted set: turn ids of a session, scored by seq; absent when empty."""
    return f"{PREFIX}lane:{key}"


def lease(key: str) -> str:
    """Hash: state kicked, running or parked, and its token; absent when the lane is idle."""
    return f"{PREFIX}lease:{key}"
