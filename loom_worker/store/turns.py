"""Turns as readers see them: one, many, their journal, statuses and number; and where the end of one is reported."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    func,
    literal,
    literal_column,
    select,
    union_all,
    update,
)

from loom_worker.core.errors import Conflict, NotFound
from loom_worker.core.values.calls import Call
from loom_worker.core.values.cutting import FIELD_BYTES
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import OPEN_VERDICT
from loom_worker.core.values.pages import Page
from loom_worker.core.values.tenants import Tenant, workspace_of
from loom_worker.core.values.turns import UNFINISHED, Step, Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.store import rows
from loom_worker.store import turn_statements as statements
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import Lock
from loom_worker.store.schema import DELETED, kept, sessions, steps, turn_columns, turns, unfinished, verdicts
from loom_worker.store.sessions import found
from loom_worker.store.tables import depth_deltas, workspace_depths
from loom_worker.store.tenants import checked_cursor, newest_first, of_session, ours, paged, parameters

SET = "webhook-set"
"""The problem of a second webhook for a turn."""
_STATUSES = (
    select(turns.c.id, turns.c.status)
    .join(sessions, sessions.c.lane == turns.c.lane)
    .where(turns.c.id.in_(bindparam("ids", expanding=True)), sessions.c.workspace != DELETED)
)


class Turns:
    """The table of turns, for reading."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, tenant: Tenant, turn_id: str) -> Turn:
        """Return a turn with its tool calls and its place in the queue."""
        with self._database.read() as tx:
            return read_turn(tx, turn_row(tx, tenant, turn_id))

    def page(self, tenant: Tenant, where: Json, *, limit: int, after: str | None) -> Page[Turn]:
        """List turns, the newest first; ``after`` is the id of the last one seen.

        Args:
            where: any of session_id, status and reason, each a value to match.
        """
        # One character more than a list shows, to see whether an answer was cut.
        columns = turn_columns(answer_chars=FIELD_BYTES + 1)
        query = newest_first(select(*columns).where(*_of(tenant), kept()), turns.c.id, checked_cursor(after, "turn_"))
        for name, value in where.items():
            query = query.where(turns.c[name] == value)
        with self._database.read() as tx:
            if "session_id" in where:
                found(tx, tenant, where["session_id"])
            return paged(tx, query, lambda row: read_turn(tx, row), limit=limit)

    def with_journal(self, tenant: Tenant, turn_id: str) -> tuple[Turn, tuple[Step, ...]]:
        """A turn and its steps in order, read together: at the turn's end its text moves from the steps to the turn."""
        with self._database.read() as tx:
            turn = read_turn(tx, turn_row(tx, tenant, turn_id))
            return turn, tuple(map(rows.step, statements.STEPS.all(tx, {"our_id": turn_id})))

    def waited(self, turn_ids: Sequence[str]) -> dict[str, Json]:
        """What the journals say of turns that wait for the model's provider, by turn; other turns are missing."""
        last = select(steps.c.turn_id, func.max(steps.c.n).label("n"))
        last = last.where(steps.c.turn_id.in_(turn_ids), steps.c.kind.in_(("reply", "waited")))
        found = last.group_by(steps.c.turn_id).subquery()
        is_last = (steps.c.turn_id == found.c.turn_id) & (steps.c.n == found.c.n)
        query = select(steps.c.turn_id, steps.c.payload).join(found, is_last).where(steps.c.kind == "waited")
        with self._database.read() as tx:
            return {row.turn_id: row.payload for row in tx.execute(query)}

    def judged(self, turn_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """For turns whose answer judges look at: since when (ms), and how often one was asked; others are missing."""
        since, sends = func.min(verdicts.c.sent_ms), func.max(verdicts.c.sends)
        query = select(verdicts.c.turn_id, since, sends).group_by(verdicts.c.turn_id)
        query = query.where(verdicts.c.turn_id.in_(turn_ids), verdicts.c.status.in_(OPEN_VERDICT))
        with self._database.read() as tx:
            return {turn_id: (since_ms, most) for turn_id, since_ms, most in tx.execute(query)}

    def begun(self, tenant: Tenant | None, *, limit: int) -> tuple[Turn, ...]:
        """Turns that have begun and not ended, the oldest first, without their input and their answer.

        Args:
            tenant: None: all workspaces.
        """
        is_text = (turns.c.input, turns.c.output_text)
        columns = [literal("").label(each.name) if each in is_text else each for each in turns.c]
        query = select(*columns).where(begun())
        if tenant is not None:
            query = query.where(*_of(tenant))
        with self._database.read() as tx:
            found = tx.execute(query.order_by(turns.c.created_ms, turns.c.id).limit(limit)).mappings().all()
            return tuple(rows.turn(row, calls=read_calls(tx, row["id"])) for row in found)

    def stats(self, tenant: Tenant | None, *, now_ms: int) -> Json:
        """Counts of a tenant's unfinished turns, and the age of the oldest queued one; None: all workspaces."""
        is_theirs = () if tenant is None else _of(tenant)
        held, parked = turns.c.held_by.is_not(None), turns.c.parked_until_ms.is_not(None)
        under_way = select(func.count(), func.count().filter(held), func.count().filter(parked))
        with self._database.read() as tx:
            open_turns, lanes = tx.execute(_depths(tenant)).one()
            begun_turns, running, waiting = tx.execute(under_way.where(begun(), *is_theirs)).one()
            oldest_ms = tx.execute(_oldest_queued(tenant)).scalar()
            dead_turns = tx.execute(select(func.count()).where(dead(), kept(), *is_theirs)).scalar_one()
        return {
            "lanes": lanes,
            "queued": open_turns - begun_turns,
            "running": running,
            "waiting": waiting,
            "oldest_queued_age_s": None if oldest_ms is None else round((now_ms - oldest_ms) / 1000, 3),
            "dead": dead_turns,
        }

    def deepest_lane(self) -> int:
        """Unfinished turns of the session that has most of them, over all workspaces; 0: there are none."""
        depths = select(func.count().label("depth")).where(unfinished()).group_by(turns.c.lane).subquery()
        with self._database.read() as tx:
            return int(tx.execute(select(func.max(depths.c.depth))).scalar() or 0)


class TurnStatuses:
    """The statuses of turns of all workspaces: whoever asks has been found to be allowed to see the turn."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, turn_ids: Sequence[str]) -> dict[str, str]:
        """By id; turns of deleted sessions are missing."""
        with self._database.read() as tx:
            return {row.id: row.status for row in tx.execute(_STATUSES, {"ids": list(turn_ids)})}


def waiting_or_begun() -> ColumnElement[bool]:
    """True of an unfinished turn, like ``unfinished()``, but found by its workspace instead of its lane."""
    return and_(turns.c.completed_ms.is_(None), turns.c.status.in_(UNFINISHED))


def begun() -> ColumnElement[bool]:
    """True of a turn that has begun and not ended, however many wait behind it: found in ``turns_open_by_status``."""
    return and_(turns.c.completed_ms.is_(None), turns.c.status.in_(("in_progress", "requires_action")))


def queued() -> ColumnElement[bool]:
    """True of a turn that has not begun; by workspace and time, as ``turns_open_by_status`` is ordered."""
    return and_(turns.c.completed_ms.is_(None), turns.c.status == "queued")


def dead() -> ColumnElement[bool]:
    """True of a turn that killed its workers too often, in the literals of ``turns_dead``."""
    return and_(turns.c.status == literal_column("'failed'"), turns.c.reason == literal_column("'dead'"))


def _of(tenant: Tenant) -> list[ColumnElement[bool]]:
    """True of the tenant's turns, those of deleted sessions included if the tenant is a whole workspace."""
    in_workspace = turns.c.workspace == workspace_of(tenant)
    return [in_workspace] if isinstance(tenant, str) else [in_workspace, of_session(turns.c.lane, ours(tenant))]


def _depths(tenant: Tenant | None) -> Select[int, int]:
    """Unfinished turns, and the sessions that have them: of a workspace in one row, of a user in its sessions."""
    summed = (workspace_depths, depth_deltas)
    known = union_all(*(select(each.c.workspace, each.c.turns, each.c.lanes) for each in summed)).subquery().c
    counted = select(func.coalesce(func.sum(known.turns), 0), func.coalesce(func.sum(known.lanes), 0))
    if tenant is None:
        return counted
    if isinstance(tenant, str):
        return counted.where(known.workspace == workspace_of(tenant))
    depth = sessions.c.queue_depth
    return select(func.coalesce(func.sum(depth), 0), func.count().filter(depth > 0)).where(ours(tenant))


def _oldest_queued(tenant: Tenant | None) -> Select[int | None]:
    """When the turn that waits longest was accepted."""
    if tenant is not None:
        return select(turns.c.created_ms).where(queued(), *_of(tenant)).order_by(turns.c.created_ms).limit(1)
    known = select(workspace_depths.c.workspace).where(workspace_depths.c.turns > 0)
    busy = known.union(select(depth_deltas.c.workspace)).subquery()
    first = select(func.min(turns.c.created_ms)).where(queued(), turns.c.workspace == busy.c.workspace)
    return select(func.min(first.correlate(busy).scalar_subquery())).select_from(busy)


def turn_row(tx: Connection, tenant: Tenant, turn_id: str) -> Any:
    """The row of a turn.

    Raises:
        NotFound: the tenant has no such turn.
    """
    row = statements.TURN.first(tx, {"our_id": turn_id, **parameters(tenant)})
    if row is None:
        raise NotFound(f"There is no turn {turn_id!r}.")
    return row


def read_turn(tx: Connection, row: Any) -> Turn:
    """A turn's row with its calls and, while it is unfinished, its place in the queue."""
    ahead = 0
    if row["completed_ms"] is None:
        ahead = statements.AHEAD.one(tx, {"our_lane": row["lane"], "our_seq": row["seq"]})["turns"]
    return rows.turn(row, calls=read_calls(tx, row["id"]), position=ahead)


def read_calls(tx: Connection, turn_id: str) -> tuple[Call, ...]:
    """The calls of a turn, in the order the model asked for them."""
    return tuple(map(rows.call, statements.CALLS.all(tx, {"our_id": turn_id})))


def set_webhook(database: Database, tenant: Tenant, turn_id: str, webhook: Webhook | None) -> Turn:
    """Have the end of a turn reported to a webhook; None: to none. The worker that ends it finds the change.

    Raises:
        NotFound: the tenant has no such turn.
        Conflict: the turn has ended, or has a webhook under another name already, which is not replaced.
    """
    with database.write(durable=True, lock=Lock.turn(turn_id)) as tx:
        row = turn_row(tx, tenant, turn_id)
        known = rows.webhook(row)
        if row["completed_ms"] is not None:
            raise Conflict(f"Turn {turn_id} has ended, and its webhook with it.", "turn-ended")
        if webhook is not None and known is not None and known.name != webhook.name:
            raise Conflict(f"Turn {turn_id} has a webhook already, and a turn has one.", SET)
        tx.execute(update(turns).where(turns.c.id == turn_id).values(rows.webhook_columns(webhook)))
        return read_turn(tx, turn_row(tx, tenant, turn_id))
