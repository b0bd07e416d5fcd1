"""What of an installation grows, how large it is, and what bounds it: for `loom doctor`."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from loom_worker.core.errors import LoomError
from loom_worker.core.settings import Settings
from loom_worker.supervisor import home

CONVERSATIONS = "LOOM_CONVERSATION_DAYS"
JOURNALS = "LOOM_JOURNAL_DAYS"
AUDIT = "LOOM_AUDIT_DAYS"
BOUNDS = {
    table: bound
    for bound, tables in {
        CONVERSATIONS: "sessions turns messages calls memory memory_snapshots message_vectors embedding_cursors"
        " workflow_runs run_stages run_events dated_summaries facts fact_sources",
        JOURNALS: "steps verdicts outbox spans",
        AUDIT: "audit",
        "LOOM_ERROR_DAYS": "agent_errors agent_messages agent_message_refs",
        "LOOM_BLOB_TTL_S": "blobs blob_grants",
        "the sessions that use them, a day, LOOM_WORKSPACE_FILE_BYTES": "files file_uses",
        "what people had deleted or corrected": "forgotten_facts",
        "the collector, and 100,000 turns": "trace_outbox",
        "the schedules that were ever in a file": "schedules",
        "1,000 versions of an agent": "learned_layers",
        "the agents of each workspace": "learned_activations",
        "the edits of agents' files": "agent_versions",
        "two for each agent and workspace": "agent_labels",
        "the agents that write it": "shared_memory",
        "the number of patterns": "pattern_uses",
        "nothing: a row a turn": "usage",
        "a row for each figure": "metric_values",
        "what happens in a second, then it is folded": "depth_deltas use_deltas audit_inbox",
        "the sessions, agents and workspaces with a budget": "spending",
        "the calls under way": "reservations",
        "the number of workspaces": "workspaces workspace_depths audit_chains",
        "the keys that were ever made": "api_keys",
        "the tokens of the last hour": "session_tokens",
        "who was ever paired with a user": "pairings",
        "the workspaces, and what guardrails look for": "guard_actions",
        "the users whose data is being deleted": "user_deletions",
    }.items()
    for table in tables.split()
}
"""Tables and what bounds their rows; a test holds it against the schema."""
EVENTS = "LOOM_EVENT_LOG_BYTES a turn, LOOM_EVENT_TTL_S after its end, LOOM_EVENT_TOTAL_BYTES together"
REDIS_BOUNDS = {
    **dict.fromkeys(("loom:events", "loom:ended-logs", "loom:end", "loom:written"), EVENTS),
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
    from loom_worker.store.database import engine_of

    try:
        with closing(engine_of(settings.database_url)) as engine:
            found = engine.size()
    except LoomError:
        return
    if found is None:
        return
    free = f", {_mb(found.free_bytes)} of it free" if found.free_bytes is not None else ""
    bound = "given back by itself" if found.can_shrink else "`loom prepare --vacuum`, once"
    yield Growth("database", f"{_mb(found.size_bytes)}{free}", bound)
    if found.wal_bytes is not None:
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
