"""The audit: rows are noted in the transaction that does what they tell of, chained, listed, verified, pruned with age.

A row is inserted into the inbox, where no transaction waits for another; a place in the chain of its workspace, with a
hash, it gets within seconds (``folding``), and before anybody reads the chain. Triggers (0011_audit.sql,
0033_folding.sql) refuse to change rows, and to remove any but those that the chain's row names as pruned, or as taken
out of the inbox.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Integer, bindparam, delete, func, insert, literal, select, tuple_, update

from loom_worker.core import metrics
from loom_worker.core.errors import Unavailable
from loom_worker.core.values.audit import (
    ID_PREFIX,
    SEQ_DIGITS,
    START,
    TURN_ENDED,
    AuditEntry,
    AuditFilter,
    AuditRow,
    BrokenChain,
    Link,
    first_break,
    hash_of,
)
from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import Page, no_cursor
from loom_worker.core.values.tenants import Actor, Tenant
from loom_worker.store import turn_statements as statements
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.engines.engine import FOLDING, Lock
from loom_worker.store.metric_values import ENDS, count, end_key
from loom_worker.store.prepared import PreparedStatement, Row
from loom_worker.store.schema import sessions, turns
from loom_worker.store.tables import audit, audit_chains, audit_inbox, guard_actions, metric_values
from loom_worker.store.tenants import matching, newest_first, of_user, paged

CHAINED = 50
"""Rows that are chained in one transaction: a few milliseconds, in which nobody else writes."""
PRUNED = 500
"""Rows that are looked at, and removed, in one transaction."""
_READ = 1000
"""Rows that a verification holds at a time."""

_USER = select(sessions.c.user).where(sessions.c.lane == bindparam("our_lane"))
_FILTERED = ("action", "user", "agent", "session_id", "turn_id")
_LISTS = ("tools", "decisions")
_ID = re.compile(rf"{ID_PREFIX}([0-9]{{{SEQ_DIGITS}}})[0-9a-f]+")
_HEAD = select(audit_chains.c.last_seq, audit_chains.c.last_hash).where(
    audit_chains.c.workspace == bindparam("our_workspace")
)
_WAITING = PreparedStatement(
    # Who chains without the lock waits here, and finds none of the rows that another has chained meanwhile.
    select(audit_inbox).order_by(audit_inbox.c.n).limit(bindparam("most", type_=Integer)).with_for_update()
)
_INSERT = PreparedStatement(insert(audit), columns=audit.c.keys())
_TAKE = (
    update(audit_chains)
    .where(audit_chains.c.workspace == bindparam("our_workspace"))
    .values(taken_n=bindparam("last_n"))
)
_LEAVE = delete(audit_inbox).where(audit_inbox.c.n.in_(bindparam("taken", expanding=True)))
_IS_WAITING = select(audit_inbox.c.n).order_by(audit_inbox.c.n).limit(1)
_DECIDED = select(audit_inbox.c.decisions).where(audit_inbox.c.decisions.is_not(None))
_COUNT = upsert(guard_actions)
_COUNT = _COUNT.on_conflict_do_update(
    index_elements=["workspace", "name", "action"],
    set_={"times": guard_actions.c.times + _COUNT.excluded.times},
)


def append(tx: Connection, entry: AuditEntry) -> None:
    """Add a row at the end of the inbox."""
    statements.NOTE.put(tx, entry.columns())


def chain(tx: Connection) -> bool:
    """Move the oldest rows of the inbox to the end of their workspaces' chains, and count what they tell of.

    Returns:
        True if there may be more.
    """
    found = _WAITING.all(tx, {"most": CHAINED})
    heads: dict[str, Link] = {}
    rows = []
    for waiting in found:
        columns = {name: value for name, value in waiting.items() if name != "n"}
        head = heads.get(columns["workspace"]) or _head(tx, columns["workspace"])
        columns |= {"seq": head.seq + 1, "previous_hash": head.hash}
        rows.append({**columns, "hash": hash_of(columns)})
        heads[columns["workspace"]] = Link(head.seq + 1, rows[-1]["hash"])
    if rows:
        _INSERT.run_each(tx, rows)  # a trigger moves the heads on
        _leave(tx, found)
        _count(tx, rows)
    return len(rows) == CHAINED


def _head(tx: Connection, workspace: str) -> Link:
    found = tx.execute(_HEAD, {"our_workspace": workspace}).first()
    return Link() if found is None else Link(found.last_seq, found.last_hash)


def _leave(tx: Connection, found: Sequence[Row]) -> None:
    """Remove these rows from the inbox; only between the two marks does the trigger let them go."""
    last = {row["workspace"]: row["n"] for row in found}
    tx.execute(_TAKE, [{"our_workspace": workspace, "last_n": n} for workspace, n in last.items()])
    tx.execute(_LEAVE, {"taken": [row["n"] for row in found]})
    tx.execute(_TAKE, [{"our_workspace": workspace, "last_n": 0} for workspace in last])


def _count(tx: Connection, rows: Sequence[Row]) -> None:
    ends = Counter(end_key(row["action"], row["status"], row["reason"]) for row in rows if row["action"] in ENDS)
    for key, times in sorted(ends.items(), key=str):
        count(tx, key, times)
    acts = Counter((row["workspace"], *act) for row in rows for act in _guard_acts(row["decisions"]))
    if acts:
        names = ("workspace", "name", "action", "times")
        tx.execute(_COUNT, [dict(zip(names, (*act, times), strict=True)) for act, times in sorted(acts.items())])


def _guard_acts(decisions: str | None) -> Iterator[tuple[str, str]]:
    """The guardrails that acted, by what a row's decisions say, with what each of them did."""
    for decision in json.loads(decisions or "[]"):
        if decision["kind"] == "guard":
            yield decision["name"], decision["outcome"]


def note_act(tx: Connection, action: str, by: Actor, *, workspace: str, at_ms: int, **about: Any) -> None:
    """Append the row of what somebody did; ``about``: other fields, and ``user`` if it is not the key's own."""
    who = {"key_id": by.key_id, "user": by.user}
    append(tx, AuditEntry(workspace=workspace, at_ms=at_ms, action=action, **(who | about)))


def user_of_lane(tx: Connection, lane: str) -> str | None:
    """Whose session it is, by its internal key."""
    return tx.execute(_USER, {"our_lane": lane}).scalar()


class AuditRows:
    """The table of the audit."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, entry: AuditEntry) -> None:
        """Append a row for what is done in no other transaction."""
        with self._database.write(lock=Lock.named("audit", entry.workspace)) as tx:
            append(tx, entry)

    def guard_counts(self) -> dict[str, int]:
        """How often guardrails did what, over all workspaces, by ``stage.kind.action``."""
        query = select(guard_actions.c.name, guard_actions.c.action, func.sum(guard_actions.c.times))
        with self._database.read() as tx:
            found = tx.execute(query.group_by(guard_actions.c.name, guard_actions.c.action)).all()
            waiting = tx.execute(_DECIDED).scalars().all()
        counts = Counter({f"{name}.{action}": int(times) for name, action, times in found})
        counts.update(f"{name}.{action}" for each in waiting for name, action in _guard_acts(each))
        return counts

    def page(self, tenant: Tenant, where: AuditFilter, *, limit: int, after: str | None) -> Page[AuditRow]:
        """List rows, the newest first; a tenant that is a user sees the rows of this user.

        Args:
            after: the id of the last one seen.

        Raises:
            Invalid: ``after`` is no such id.
        """
        query = select(audit).where(*of_user(audit, tenant), *matching(audit, where, _FILTERED))
        query = newest_first(query, audit.c.seq, None if after is None else _cursor(after))
        self._chain_waiting()
        with self._database.read() as tx:
            return paged(tx, query, _row, limit=limit)

    def heads(self) -> dict[str, Link]:
        """The last row of each workspace, by its name; kept elsewhere, it shows whether rows were replaced."""
        self._chain_waiting()
        with self._database.read() as tx:
            found = tx.execute(select(audit_chains).order_by(audit_chains.c.workspace)).all()
        return {row.workspace: Link(row.last_seq, row.last_hash) for row in found}

    def verify(self) -> tuple[BrokenChain, ...]:
        """Read all rows at one moment and return the first break of each workspace's chain; empty: all hold.

        Where no chain is broken, the turns that have ended are counted, for an emptied or cut chain has no break.
        """
        self._chain_waiting()
        with self._database.read() as tx:
            chains = {row.workspace: row for row in tx.execute(select(audit_chains))}
            seen: set[str] = set()
            found = []
            for workspace, rows in groupby(_all(tx), key=lambda row: str(row["workspace"])):
                seen.add(workspace)
                found.append(_verified(workspace, rows, chains.get(workspace)))
            found += [_verified(name, iter(()), chain) for name, chain in chains.items() if name not in seen]
            return tuple(filter(None, found)) or _untold(tx, sum(chain.pruned_seq for chain in chains.values()))

    def prune(self, *, before_ms: int) -> int:
        """Remove some of the oldest rows of each workspace that are older than a moment; return how many.

        The chain's row keeps the last removed hash, from which a verification begins.
        """
        with self._database.read() as tx:
            chains = tx.execute(select(audit_chains.c.workspace, audit_chains.c.pruned_seq)).all()
        return sum(self._prune(chain.workspace, chain.pruned_seq, before_ms) for chain in chains)

    def _chain_waiting(self) -> None:
        with suppress(Unavailable):  # a full disk keeps nobody from reading what is chained
            with self._database.read() as tx:
                has_more = tx.execute(_IS_WAITING).first() is not None
            while has_more:
                with self._database.write(lock=FOLDING, is_timed=False) as tx:
                    has_more = chain(tx)

    def _prune(self, workspace: str, after: int, before_ms: int) -> int:
        ours = audit.c.workspace == workspace
        oldest = select(audit.c.seq, audit.c.hash, audit.c.at_ms).where(ours, audit.c.seq > after)
        with self._database.read() as tx:
            rows = tx.execute(oldest.order_by(audit.c.seq).limit(PRUNED)).all()
        young = next((place for place, row in enumerate(rows) if row.at_ms >= before_ms), len(rows))
        if not young:
            return 0
        last = rows[young - 1]
        anchor = update(audit_chains).where(audit_chains.c.workspace == workspace)
        with self._database.write(lock=FOLDING) as tx:
            tx.execute(anchor.values(pruned_seq=last.seq, pruned_hash=last.hash))
            return tx.execute(delete(audit).where(ours, audit.c.seq <= last.seq)).rowcount


def _all(tx: Connection) -> Iterator[Any]:
    """All rows in the order of their chains."""
    place, query = tuple_(audit.c.workspace, audit.c.seq), select(audit).order_by(audit.c.workspace, audit.c.seq)
    rows = tx.execute(query.limit(_READ)).mappings().all()
    while rows:
        yield from rows
        last = tuple_(literal(rows[-1]["workspace"]), literal(rows[-1]["seq"]))
        rows = tx.execute(query.where(place > last).limit(_READ)).mappings().all()


def _verified(workspace: str, rows: Iterator[Any], chain: Any | None) -> BrokenChain | None:
    if chain is None:
        return BrokenChain(workspace, 1, "nothing says where this chain begins and ends")
    start = Link(chain.pruned_seq, chain.pruned_hash or START)
    return first_break(rows, workspace, start, Link(chain.last_seq, chain.last_hash))


def _untold(tx: Connection, pruned: int) -> tuple[BrokenChain, ...]:
    """Whether more ends of turns were counted (``chain``) than rows tell of, or were removed with age."""
    counted = select(func.sum(metric_values.c.value)).where(metric_values.c.series.startswith(metrics.TURNS.name))
    rows = select(func.count()).select_from(audit).where(audit.c.action == TURN_ENDED)
    missing = int(tx.execute(counted).scalar() or 0) - tx.execute(rows).scalar_one() - pruned
    if missing <= 0:
        return ()
    told = select(audit.c.turn_id).where(audit.c.workspace == turns.c.workspace, audit.c.turn_id == turns.c.id).exists()
    untold = select(turns.c.workspace).where(turns.c.completed_ms.is_not(None), ~told).limit(1)
    why = f"{missing} turns have ended of which no row tells: the chain was emptied or cut"
    return (BrokenChain(tx.execute(untold).scalar() or "(of deleted sessions)", 1, why),)


def _cursor(after: str) -> int:
    """The ``seq`` in the id of a row."""
    if (found := _ID.fullmatch(after)) is None:
        raise no_cursor(after)
    return int(found[1])


def _row(row: Any) -> AuditRow:
    lists: dict[str, list[Json]] = {name: json.loads(row[name] or "[]") for name in _LISTS}
    values = {name: row[name] for name in AuditEntry.__slots__ if name not in _LISTS}
    entry = AuditEntry(**values, tools=tuple(lists["tools"]), decisions=tuple(lists["decisions"]))
    return AuditRow(row["seq"], entry, row["previous_hash"], row["hash"])
