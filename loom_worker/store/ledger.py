"""The ledger of what was spent."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, insert, select, update

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import Tenant, user_of, workspace_of
from loom_worker.store.database import Database
from loom_worker.store.schema import sessions, usage

GROUPS = ("session", "agent", "model", "workspace", "day")
"""What usage can be grouped by."""

_USED = select(sessions.c.usage).where(sessions.c.lane == bindparam("our_lane"))
_USE = update(sessions).where(sessions.c.lane == bindparam("our_lane")).values(usage=bindparam("usage"))
_USER = select(sessions.c.user).where(sessions.c.lane == bindparam("our_lane")).scalar_subquery()
_ENTER = insert(usage).values(user=_USER)


@dataclass(frozen=True, slots=True)
class Charge:
    """What was spent, on whose account."""

    workspace: str
    session_id: str
    agent: str
    model: str
    """The model that answered."""
    usage: Usage
    turn_id: str = ""
    """Empty for what no turn asked for: a summary."""


class Ledger:
    """The table of usage."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def totals(self, tenant: Tenant, *, group_by: str) -> tuple[Json, ...]:
        """Sums per key, by key; a cost is null where a price was not known. Summaries cost, but count as no turn.

        Args:
            group_by: one of GROUPS.
        """
        key = _key(group_by)
        sums = [func.sum(usage.c[name]).label(name) for name in _SUMMED]
        unknown = func.sum(usage.c.cost_usd.is_(None)).label("unknown")
        query = select(key.label("key"), *sums, _TURNS.label("turns"), unknown)
        query = query.where(usage.c.workspace == workspace_of(tenant))
        if (user := user_of(tenant)) is not None:
            query = query.where(usage.c.user == user)
        with self._database.read() as tx:
            found = tx.execute(query.group_by(key).order_by(key)).mappings().all()
        return tuple(_total(row, group_by) for row in found)

    def charge(self, lane: str, spent: Charge, *, now_ms: int) -> None:
        """Enter what was spent in no other transaction."""
        with self._database.write() as tx:
            charge(tx, lane, spent, now_ms=now_ms)


def charge(tx: Connection, lane: str, spent: Charge, *, now_ms: int) -> None:
    """Add to what a session has used, if it is still there, and to the ledger in any case."""
    tx.execute(_USE, {"our_lane": lane, "usage": total_with(tx, lane, spent.usage).as_json()})
    enter(tx, lane, spent, now_ms=now_ms)


def total_with(tx: Connection, lane: str, spent: Usage) -> Usage:
    """What a session will have used with this.

    It is read in the transaction that writes it: turns and summaries of one session are charged side by side.
    """
    return Usage.from_json(tx.execute(_USED, {"our_lane": lane}).scalar() or {}) + spent


def enter(tx: Connection, lane: str, spent: Charge, *, now_ms: int) -> None:
    """Write what was spent into the ledger, for the user of the session; nothing if no model was called."""
    if spent.usage.llm_calls:
        names = ("workspace", "session_id", "turn_id", "agent", "model")
        whose = {"our_lane": lane} | {name: getattr(spent, name) for name in names}
        tx.execute(_ENTER, whose | spent.usage.as_json() | {"at_ms": now_ms})


_DAY_MS = 86_400_000
_TURNS = func.count(func.distinct(func.nullif(usage.c.turn_id, "")))
_SUMMED = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd")


def _total(row: Any, group_by: str) -> Json:
    total = {name: row[name] for name in (*_SUMMED, "turns")}
    cost_usd = None if row["unknown"] else row["cost_usd"]
    return {"key": _shown(row["key"], group_by), **total, "cost_usd": cost_usd}


def _key(group_by: str) -> ColumnElement[Any]:
    if group_by == "day":
        return usage.c.at_ms - usage.c.at_ms % _DAY_MS
    return usage.c["session_id" if group_by == "session" else group_by]


def _shown(key: Any, group_by: str) -> str:
    return datetime.fromtimestamp(key / 1000, UTC).strftime("%Y-%m-%d") if group_by == "day" else key
