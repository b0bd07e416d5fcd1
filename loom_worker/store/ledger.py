"""The ledger of what was spent: one entry for each model that answered a turn, and for each call made beside it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, literal_column, select, update

from loom_worker.core.values.budgets import NANO, Settlement, nano
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.turns import PAID
from loom_worker.core.values.usage import ALL, Purpose, UsageFilter
from loom_worker.store import turn_statements as statements
from loom_worker.store.budgets import settle
from loom_worker.store.database import Database
from loom_worker.store.dialect import month_of, number_of
from loom_worker.store.engines.engine import Lock
from loom_worker.store.prepared import PendingRow
from loom_worker.store.schema import sessions, steps, turns, unfinished, usage, verdicts
from loom_worker.store.tenants import matching, of_user

_USE = update(sessions).where(sessions.c.lane == bindparam("our_lane")).values(usage=bindparam("usage"))
_TOKENS = usage.c.input_tokens + usage.c.output_tokens + usage.c.cache_read_tokens + usage.c.cache_write_tokens
_OF_KEY = (
    select(usage.c.at_ms, _TOKENS)
    .where(usage.c.key_id == bindparam("our_key"), usage.c.at_ms > bindparam("since_ms"))
    .order_by(usage.c.at_ms)
)
_RUNNING_OF_KEY = select(turns.c.usage).where(turns.c.key_id == bindparam("our_key"), unfinished())
_REPLIES = (
    select(turns.c.id, turns.c.workspace, turns.c.session_id, turns.c.agent, steps.c.payload)
    .join(steps, steps.c.turn_id == turns.c.id)
    .where(turns.c.lane == bindparam("our_lane"), unfinished(), steps.c.kind.in_(PAID))
)
_VERDICTS = (
    select(turns.c.id, turns.c.workspace, turns.c.session_id, turns.c.agent, verdicts.c.model, verdicts.c.usage)
    .join(verdicts, verdicts.c.turn_id == turns.c.id)
    .where(turns.c.lane == bindparam("our_lane"), unfinished())
)


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
    kind: Purpose = "turn"
    tool_calls: int = 0
    settlement: Settlement | None = None
    """What it takes off budgets; None: that is settled elsewhere."""


class Ledger:
    """The table of usage."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def totals(self, tenant: Tenant, *, group_by: str, where: UsageFilter = ALL) -> tuple[Json, ...]:
        """Sums per key, by key; a cost is null where a price was not known. Summaries cost, but count as no turn.

        Args:
            group_by: one of GROUPS (values/usage.py).
        """
        key = _key(group_by)
        sums = [func.sum(usage.c[name]).label(name) for name in _SUMMED]
        unknown = func.sum(number_of(usage.c.cost_nano.is_(None))).label("unknown")
        query = select(key.label("key"), *sums, _TURNS.label("turns"), unknown)
        query = query.where(*of_user(usage, tenant), *matching(usage, where, _FILTERED))
        with self._database.read() as tx:
            found = [_total(row, group_by) for row in tx.execute(query.group_by(_FIRST).order_by(_FIRST)).mappings()]
        return tuple(sorted(found, key=lambda total: total["key"] == ""))  # last, for no page can go on behind it

    def tokens_of_key(self, key_id: str, *, since_ms: int) -> tuple[tuple[tuple[int, int], ...], int]:
        """What turns that were submitted with a key have used.

        Returns:
            Of those that ended since: when, and how many tokens, in order; and the tokens of unfinished ones so far.
        """
        ours = {"our_key": key_id, "since_ms": since_ms}
        with self._database.read() as tx:
            booked = tuple((at_ms, tokens) for at_ms, tokens in tx.execute(_OF_KEY, ours))
            running = sum(Usage.from_json(used).tokens for used in tx.execute(_RUNNING_OF_KEY, ours).scalars())
        return booked, running

    def charge(self, lane: str, spent: Charge, *, now_ms: int) -> None:
        """Enter what was spent in no other transaction."""
        with self._database.write(lock=Lock.lane(lane)) as tx:
            charge(tx, lane, spent, now_ms=now_ms)


def charge(tx: Connection, lane: str, spent: Charge, *, now_ms: int) -> None:
    """Add to what a session has used, if it is still there, and to ledger and budgets in any case."""
    if spent.settlement is not None:
        settle(tx, spent.settlement, now_ms=now_ms)
    tx.execute(_USE, {"our_lane": lane, "usage": total_with(ask_used(tx, lane), spent.usage).as_json()})
    enter(tx, lane, spent, now_ms=now_ms)


def charge_unfinished(tx: Connection, lane: str, *, now_ms: int) -> None:
    """Enter what the unfinished turns of a session have used so far: it is about to be deleted with them."""
    spent: dict[tuple[Any, ...], Usage] = {}
    for turn_id, workspace, session_id, agent, payload in tx.execute(_REPLIES, {"our_lane": lane}):
        key = (workspace, session_id, agent, str(payload["model"]), turn_id, "turn")
        spent[key] = spent.get(key, Usage()) + Usage.from_json(payload["usage"])
    for turn_id, workspace, session_id, agent, model, used in tx.execute(_VERDICTS, {"our_lane": lane}):
        key = (workspace, session_id, agent, model or "", turn_id, "judge")
        spent[key] = spent.get(key, Usage()) + Usage.from_json(used)
    for (workspace, session_id, agent, model, turn_id, kind), total in spent.items():
        enter(tx, lane, Charge(workspace, session_id, agent, model, total, turn_id, kind=kind), now_ms=now_ms)


def ask_used(tx: Connection, lane: str) -> PendingRow:
    """Ask for what a session has used, as ``total_with`` takes it.

    It is read in the transaction that writes it: turns and summaries of one session are charged side by side.
    """
    return statements.USED.ask(tx, {"our_lane": lane})


def total_with(before: PendingRow, spent: Usage) -> Usage:
    """What a session will have used with this."""
    return Usage.from_json((before.answer() or {}).get("usage", {})) + spent


def enter(tx: Connection, lane: str, spent: Charge, *, now_ms: int) -> None:
    """Write what was spent into the ledger, for the user of the session; nothing if no model was called."""
    if spent.usage.llm_calls:
        names = ("workspace", "session_id", "turn_id", "agent", "model", "kind", "tool_calls")
        cost = spent.usage.cost_usd
        figures = spent.usage.as_json() | {"cost_nano": None if cost is None else nano(cost), "at_ms": now_ms}
        booked = {"our_lane": lane, "our_turn": spent.turn_id, **{name: getattr(spent, name) for name in names}}
        statements.ENTER.put(tx, booked | figures)


_PERIODS_OF_ONE_LENGTH_MS = {"hour": 3_600_000, "day": 86_400_000}
_FIRST: ColumnElement[int] = literal_column("1")
"""The first column: PostgreSQL does not see that two expressions with parameters of their own are the same."""
_FILTERED = ("turn_id", "session_id", "agent", "model", "kind")
_SHOWN_AS = {"hour": "%Y-%m-%dT%H:00Z", "day": "%Y-%m-%d"}
_COLUMNS = {"session": "session_id", "turn": "turn_id", "run": "run_id"}
_TURNS = func.count(func.distinct(func.nullif(usage.c.turn_id, "")))
_SUMMED = (
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("llm_calls", "tool_calls", "cost_nano"),
)


def _total(row: Any, group_by: str) -> Json:
    total = {name: row[name] for name in (*_SUMMED, "turns") if name != "cost_nano"}
    cost_usd = None if row["unknown"] else float(row["cost_nano"] * NANO)
    return {"key": _shown(row["key"], group_by), **total, "cost_usd": cost_usd}


def _key(group_by: str) -> ColumnElement[Any]:
    length_ms = _PERIODS_OF_ONE_LENGTH_MS.get(group_by)
    if length_ms is not None:
        return usage.c.at_ms - usage.c.at_ms % length_ms
    if group_by == "month":
        return month_of(usage.c.at_ms)
    return func.coalesce(usage.c[_COLUMNS.get(group_by, group_by)], "")


def _shown(key: Any, group_by: str) -> str:
    shown_as = _SHOWN_AS.get(group_by)
    return key if shown_as is None else datetime.fromtimestamp(key / 1000, UTC).strftime(shown_as)
