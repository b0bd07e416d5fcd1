"""The names of the keys in Redis. Each key can be lost at any time and is rebuilt from the database."""

PREFIX = "loom:"

LEASES = PREFIX + "leases"
"""Sorted set: lane to the deadline of its lease in ms; the sweep's only index."""

WORKERS = PREFIX + "workers"
"""Sorted set: worker to its last heartbeat in ms."""

UNCLAIMED = PREFIX + "unanswered"
"""String: since when, in ms of Redis' clock, the oldest wake-up has waited; gone when a worker takes it."""

MEMORY_SINCE = PREFIX + "born"
"""String that lives since Redis has held our keys without a loss; the rest of its lifetime says how long."""

WAKEUPS = PREFIX + "q:turn"
"""List: the wake-ups that no worker has taken yet. It is Celery's queue ``turn``; we only check if it is empty."""

FREE_SLOTS = PREFIX + "free"
"""Sorted set: free slots, each until when it waits for a lane, in ms."""

CONTENT_VERSION = PREFIX + "content:version"
"""String: what process accepted content of agents last, and which; another text with each change."""

TRACES = PREFIX + "q:trace"
"""List: Celery's queue ``trace``; we only look how many messages wait there."""

TRACES_SENT = PREFIX + "trace-sent"
"""String: the exporter of traces was sent for a moment ago."""

PULSE = PREFIX + "pulse"
"""String: when the last heartbeat or sweep came, in ms of Redis' clock."""

GRACE = PREFIX + "grace"
"""String: Redis stood still a moment ago. It lasts for two leases; in the first half running leases are spared."""

SWEEP = PREFIX + "sweep"
"""String: the lock of the sweep."""


def worker(name: str) -> str:
    """Hash: how a worker describes itself in each heartbeat; it expires when the heartbeats stop."""
    return f"{PREFIX}worker:{name}"


def assigned(slot: str) -> str:
    """List: the lane that a free slot was given; it expires with the lane's lease. ``common.lua`` has the name, too."""
    return f"{PREFIX}assigned:{slot}"


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
    """String: the call of the model that a turn waits for, written by the turn's owner; expires when that stops."""
    return f"{PREFIX}waiting:{turn_id}"


def told(edit: str) -> str:
    """String: an edit of a file, named by its digest, has been logged and counted; a week."""
    return f"{PREFIX}content:told:{edit}"


def late(turn_id: str, reply_n: int) -> str:
    """String: it has been logged that the tool calls of a turn's reply take long."""
    return f"{PREFIX}late:{turn_id}:{reply_n}"
