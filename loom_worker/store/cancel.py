"""Cancel requests: a turn that has not begun ends at once, a running one gets the request written into its row."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, case, literal, update

from loom_worker.core.errors import NotFound
from loom_worker.core.values.audit import turn_ended
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.traces import TurnTrace
from loom_worker.core.values.turns import STRENGTH, CancelAction, Turn
from loom_worker.store.audit import append, user_of_lane
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import Lock
from loom_worker.store.outbox import enqueue_delivery
from loom_worker.store.schema import turns, unfinished
from loom_worker.store.trace_outbox import enqueue_trace
from loom_worker.store.turns import read_turn, turn_row

_REQUEST = update(turns).where(turns.c.id == bindparam("our_id")).values(cancel=bindparam("action"))
_END = (
    update(turns)
    .where(turns.c.id == bindparam("our_id"))
    .values(
        cancel=bindparam("action"), status="cancelled", reason=bindparam("action"), completed_ms=bindparam("now_ms")
    )
)
_STRENGTH = case({name: level for name, level in STRENGTH.items() if name}, value=turns.c.cancel, else_=literal(0))
_OVERRULE = (
    update(turns)
    .where(
        turns.c.lane == bindparam("our_lane"),
        unfinished(),
        turns.c.started_ms.is_not(None),
        bindparam("strength") > _STRENGTH,
    )
    .values(cancel=bindparam("action"))
)


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancel request has changed."""

    turn: Turn
    is_new: bool
    """False if it changed nothing: the turn has ended, or an equal or stronger request came before."""
    delivery: Delivery | None = None
    """The webhook of a turn that it ended."""


def cancel(
    database: Database,
    asked_turn: tuple[Tenant, str],
    action: CancelAction,
    *,
    now_ms: int,
    deliver: Callable[[Turn], Delivery | None],
    is_exported: bool = False,
) -> Cancelled:
    """Commit a client's cancel request.

    Args:
        asked_turn: whose it is, and its id.
        deliver: makes the webhook delivery of a turn that ends here, if it wants one.
        is_exported: True: its trace is exported if it ends here, unless the client records no trace of it.

    Raises:
        NotFound: the tenant has no such turn.
    """
    tenant, turn_id = asked_turn
    with database.write(durable=True, lock=Lock.turn(turn_id)) as tx:
        done = cancel_turn(tx, tenant, turn_id, action, now_ms=now_ms, is_exported=is_exported)
        delivery = deliver(done.turn) if done.is_new and done.turn.is_finished else None
        if delivery is not None:
            enqueue_delivery(tx, delivery)
        return replace(done, delivery=delivery)


def cancel_turn(
    tx: Connection, tenant: Tenant, turn_id: str, action: CancelAction, *, now_ms: int, is_exported: bool
) -> Cancelled:
    """Write a cancel request, in the transaction of whoever makes it."""
    row = turn_row(tx, tenant, turn_id)
    if row["completed_ms"] is not None or STRENGTH[row["cancel"]] >= STRENGTH[action]:
        return Cancelled(read_turn(tx, row), is_new=False)
    asked = {"our_id": turn_id, "action": action}
    if row["started_ms"] is None and action != "finish":
        tx.execute(_END, {**asked, "now_ms": now_ms})
    else:
        tx.execute(_REQUEST, asked)
    turn = read_turn(tx, turn_row(tx, tenant, turn_id))
    if turn.is_finished:
        append(tx, turn_ended(turn, user=user_of_lane(tx, turn.lane)))
        if is_exported and not TurnTrace.of(row["trace"]).is_unsampled:
            enqueue_trace(tx, turn_id, now_ms=now_ms)
    return Cancelled(turn, is_new=True)


def interrupt_turn(tx: Connection, workspace: str, turn_id: str, *, now_ms: int, is_exported: bool) -> Turn | None:
    """Ask a turn to end that belongs to something that ends; None if it was asked before, has ended or is deleted."""
    try:
        done = cancel_turn(tx, workspace, turn_id, "interrupt", now_ms=now_ms, is_exported=is_exported)
    except NotFound:
        return None
    return done.turn if done.is_new else None


def weaker_than(action: CancelAction) -> ColumnElement[bool]:
    """True of turns with no cancel request as strong as this one."""
    return literal(STRENGTH[action]) > _STRENGTH


def overrule(tx: Connection, owner: Any, action: CancelAction) -> None:
    """Ask the running turn of a session to end, if there is one; turns that have not begun stay queued."""
    tx.execute(_OVERRULE, {"our_lane": owner["lane"], "action": action, "strength": STRENGTH[action]})
