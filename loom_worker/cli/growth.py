"""What of an installation grows, how large it is, and what bounds it: for `loom doctor`."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from loom_worker.core.errors import LoomError
from loom_worker.core.settings import Settings
from loom_worker.core.variables import database_path
from loom_worker.supervisor import home

CONVERSATIONS = "LOOM_CONVERSATION_DAYS"
JOURNALS = "LOOM_JOURNAL_DAYS"
AUDIT = "LOOM_AUDIT_DAYS"
BOUNDS = {
    "sessions": CONVERSATIONS,
    "turns": CONVERSATIONS,
    "messages": CONVERSATIONS,
    "calls": CONVERSATIONS,
    "memory": CONVERSATIONS,
    "memory_snapshots": CONVERSATIONS,
    "message_vectors": CONVERSATIONS,
    "embedding_cursors": CONVERSATIONS,
    "workflow_runs": CONVERSATIONS,
    "run_stages": CONVERSATIONS,
    "run_events": CONVERSATIONS,
    "dated_summaries": CONVERSATIONS,
    "facts": CONVERSATIONS,
    "fact_sources": CONVERSATIONS,
    "forgotten_facts": "what people had deleted or corrected",
    "steps": JOURNALS,
    "verdicts": JOURNALS,
    "outbox": JOURNALS,
    "trace_outbox": "the collector, and 100,000 turns",
    "agent_errors": "LOOM_ERROR_DAYS",
    "blobs": "LOOM_BLOB_TTL_S",
    "blob_grants": "LOOM_BLOB_TTL_S",
    "schedules": "the schedules that were ever in a file",
    "learned_layers": "1,000 versions of an agent",
    "learned_activations": "the agents of each workspace",
    "agent_versions": "the edits of agents' files",
    "agent_labels": "two for each agent and workspace",
    "agent_messages": "LOOM_ERROR_DAYS",
    "agent_message_refs": "LOOM_ERROR_DAYS",
    "shared_memory": "the agents that write it",
    "pattern_uses": "the number of patterns",
    "usage": "nothing: a row a turn",
    "spans": JOURNALS,
    "metric_values": "a row for each figure",
    "spending": "the sessions, agents and workspaces with a budget",
    "reservations": "the calls under way",
    "workspaces": "the number of workspaces",
    "workspace_depths": "the number of workspaces",
    "api_keys": "the keys that were ever made",
    "session_tokens": "the tokens of the last hour",
    "pairings": "who was ever paired with a user",
    "guard_actions": "the workspaces, and what guardrails look for",
    "audit": AUDIT,
    "audit_chains": "the number of workspaces",
    "user_deletions": "the users whose data is being deleted",
}
"""Tables and what bounds their rows; a test holds it against the schema."""
EVENTS = "LOOM_EVENT_LOG_BYTES a turn, LOOM_EVENT_TTL_S after its end, LOOM_EVENT_TOTAL_BYTES together"
REDIS_BOUNDS = {
    "loom:events": EVENTS,
    "loom:ended-logs": EVENTS,
    "loom:end": EVENTS,
    "loom:written": EVENTS,
    "loom:gone": "an hour after its session was deleted",
    "loom:blob": "LOOM_BLOB_MEMORY_BYTES",
    "loom:q": "the turns, calls, webhooks and traces that wait",
}
_CLIENT: dict[str, Any] = {
    "socket_timeout": 3,
    "socket_connect_timeout": 3,
    "decode_responses": True,
    "encoding_errors": "replace",  # other programs may keep keys there
}
SAMPLE = 2_000
"""Keys of Redis that are measured; the rest is estimated from them."""


@dataclass(frozen=True, slots=True)
class Growth:
    """One thing that grows."""

    name: str
    size: str
    bound: str
    """A setting, or what else keeps it from growing; ``nothing`` where nothing does."""


def growth(settings: Settings) -> Iterator[Growth]:
    """All that can be measured; what cannot be read is left out, for the checks say so of it."""
    yield from _database(settings)
    yield Growth("blobs on disk", _mb(_bytes_below(settings.blobs.folder)), "LOOM_BLOB_DISK_BYTES")
    yield Growth("logs", _mb(_bytes_below(settings.home / home.LOGS)), "10 MB a file, three older ones of each process")
    yield from _redis(settings)


def _database(settings: Settings) -> Iterator[Growth]:
    from loom_worker.store.space import file_sizes

    file = database_path(settings.database_url)
    if not file.exists():
        return
    try:
        found = file_sizes(file)
    except LoomError:
        return
    free = f"{_mb(found.file_bytes)}, {_mb(found.free_bytes)} of it free"
    yield Growth("database", free, "given back by itself" if found.can_shrink else "`loom prepare --vacuum`, once")
    yield Growth("write-ahead log", _mb(found.wal_bytes), "16 MB")
    for table, rows in sorted(found.rows.items(), key=lambda each: -each[1]):
        yield Growth(table, f"{rows:,} rows", _with_value(BOUNDS[table], settings))


def _with_value(bound: str, settings: Settings) -> str:
    kept = settings.retention
    days = {CONVERSATIONS: kept.conversation_days, JOURNALS: kept.journal_days, AUDIT: kept.audit_days}
    if bound not in days:
        return bound
    return f"{bound} = {days[bound]}" if days[bound] else f"nothing: {bound} = 0"


def _redis(settings: Settings) -> Iterator[Growth]:
    from redis import Redis
    from redis.exceptions import RedisError

    if settings.has_embedded_redis and home.running(settings.home) is None:
        return
    client: Any = Redis.from_url(settings.redis_url, **_CLIENT)
    try:
        used: dict[str, Any] = client.info("memory")
        kinds, share = _kinds(client)
    except RedisError:
        return
    finally:
        client.close()
    most = used["maxmemory"]
    yield Growth("redis", _mb(used["used_memory"]), f"its maxmemory, {_mb(most)}" if most else "nothing: no maxmemory")
    for kind, (keys, size_bytes) in sorted(kinds.items(), key=lambda each: -each[1][1]):
        about = "" if share == 1 else "about "
        shown = f"{about}{round(keys / share):,} keys, {_mb(round(size_bytes / share))}"
        yield Growth(f"redis {kind}", shown, REDIS_BOUNDS.get(kind, "the sessions and processes there are"))


def _kinds(client: Any) -> tuple[dict[str, tuple[int, int]], float]:
    """Keys and bytes by the first two parts of their name, and what share of all keys was looked at (0-1)."""
    sampled = list(islice(client.scan_iter(count=500), SAMPLE))
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for key, size_bytes in _measured(client, sampled):
        kind = ":".join(key.split(":")[:2])
        keys, total_bytes = found[kind]
        found[kind] = keys + 1, total_bytes + size_bytes
    return found, min(1.0, len(sampled) / max(1, client.dbsize()))


def _measured(client: Any, keys: Sequence[str]) -> Iterator[tuple[str, int]]:
    for start in range(0, len(keys), 200):
        some = keys[start : start + 200]
        pipe = client.pipeline(transaction=False)
        for key in some:
            pipe.memory_usage(key, samples=5)
        yield from zip(some, (size or 0 for size in pipe.execute()), strict=True)


def _bytes_below(folder: Path) -> int:
    try:
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    except OSError:  # a file went while it was looked at
        return 0


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
