"""A session is deleted: nobody finds it from then on, what it has spent is entered, and the audit says who did it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from loom_worker.core.values.audit import turn_ended
from loom_worker.core.values.tenants import Actor
from loom_worker.store import purge, rows
from loom_worker.store import turn_statements as statements
from loom_worker.store.agent_messages import remove_of
from loom_worker.store.audit import append, note_act
from loom_worker.store.budgets import forget
from loom_worker.store.fact_changes import remove_of_session
from loom_worker.store.ledger import charge_unfinished
from loom_worker.store.schema import DELETED, sessions, turns, unfinished

DELETED_REASON = "deleted"

_HIDE = update(sessions).where(sessions.c.lane == bindparam("our_lane")).values(workspace=DELETED, id=bindparam("name"))
_LIVE = select(turns).where(turns.c.lane == bindparam("our_lane"), unfinished()).order_by(turns.c.seq)
_parents = turns.alias("parents")
_CHILDREN = select(sessions).where(
    sessions.c.workspace != DELETED,
    sessions.c.lane.in_(
        select(turns.c.lane)
        .join(_parents, _parents.c.id == turns.c.parent_turn_id)
        .where(_parents.c.lane.in_(bindparam("lanes", expanding=True)))
    ),
)


@dataclass(frozen=True, slots=True)
class Deleted:
    """A session that was deleted."""

    lane: str
    turns: Mapping[str, bool]
    """By id of its turns: True if the turn had not ended, so that a worker may still run it."""


def remove(tx: Connection, row: Any, by: Actor, *, now_ms: int) -> Deleted:
    """Delete a session, and at once its turns that have not ended; ``purge`` removes the rest.

    Returns:
        The session with these turns alone.
    """
    lane: str = row["lane"]
    tx.execute(_HIDE, {"our_lane": lane, "name": lane})
    charge_unfinished(tx, lane, now_ms=now_ms)
    forget(tx, "session", lane)
    remove_of(tx, row["workspace"], row["id"], lane, now_ms=now_ms)
    live = tx.execute(_LIVE, {"our_lane": lane}).mappings().all()
    for each in live:
        made = tuple(map(rows.call, statements.CALLS.all(tx, {"our_id": each["id"]})))
        stopped = replace(rows.turn(each, calls=made), status="cancelled", reason=DELETED_REASON, completed_ms=now_ms)
        append(tx, turn_ended(stopped, user=row["user"]))
    purge.remove_live_rows(tx, lane)
    remove_of_session(tx, row["workspace"], lane)
    about = {"user": row["user"] or by.user, "agent": row["agent"] or None, "session_id": row["id"]}
    note_act(tx, "session.deleted", by, workspace=row["workspace"], at_ms=now_ms, **about)
    return Deleted(lane, {each["id"]: True for each in live})


def with_children(tx: Connection, row: Any) -> tuple[Any, ...]:
    """A session's row, and those of the sessions in which other agents worked for its turns, and for theirs."""
    found = {row["lane"]: row}
    lanes = [row["lane"]]
    while lanes:
        new = tx.execute(_CHILDREN, {"lanes": lanes}).mappings().all()
        lanes = [each["lane"] for each in new if each["lane"] not in found]
        found |= {each["lane"]: each for each in new}
    return tuple(found.values())
