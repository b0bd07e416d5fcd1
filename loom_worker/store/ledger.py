"""The ledger of what was spent."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select

from loom_worker.store.database import Database
from loom_worker.store.schema import usage
from loom_worker.values.json import Json

GROUPS = ("session", "agent", "model", "workspace", "day")
"""What usage can be grouped by."""


class Ledger:
    """The table of usage."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def totals(self, workspace: str, *, group_by: str) -> tuple[Json, ...]:
        """Sums per key, by key; a cost is null where a price was not known.

        Args:
            group_by: one of GROUPS.
        """
        key = _key(group_by)
        sums = [func.sum(usage.c[name]).label(name) for name in _SUMMED]
        unknown = func.sum(usage.c.cost_usd.is_(None)).label("unknown")
        query = select(key.label("key"), *sums, func.count(func.distinct(usage.c.turn_id)).label("turns"), unknown)
        with self._database.read() as tx:
            found = tx.execute(query.where(usage.c.workspace == workspace).group_by(key).order_by(key)).mappings().all()
        return tuple(_total(row, group_by) for row in found)


_DAY_MS = 86_400_000
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
