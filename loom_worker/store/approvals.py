"""A person decides on a tool call that waits for one."""

from typing import Any

from sqlalchemy import Connection, select, update

from loom_worker.core.errors import Conflict, NotFound
from loom_worker.core.values.calls import Call
from loom_worker.core.values.decisions import Decision
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.turns import Turn
from loom_worker.store import rows
from loom_worker.store.audit import note_act, user_of_lane
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import Lock
from loom_worker.store.schema import calls
from loom_worker.store.turns import read_turn, turn_row


def waiting(database: Database, tenant: Tenant, turn_id: str, call_id: str) -> tuple[Turn, Call]:
    """The call that waits for a decision, with its turn.

    Raises:
        NotFound: the tenant has no such turn, or the turn no such call.
        Conflict: it is decided, it needs no decision, or the turn has ended.
    """
    with database.read() as tx:
        turn = read_turn(tx, turn_row(tx, tenant, turn_id))
        return turn, _waiting(tx, turn, call_id)


def decide(database: Database, tenant: Tenant, turn_id: str, call_id: str, decision: Decision, *, now_ms: int) -> Turn:
    """Commit what a person says to a call.

    Returns:
        The turn with the decision in it.

    Raises:
        NotFound, Conflict: as ``waiting``; nothing was changed.
    """
    with database.write(durable=True, lock=Lock.turn(turn_id)) as tx:
        turn = read_turn(tx, turn_row(tx, tenant, turn_id))
        call = _waiting(tx, turn, call_id)
        is_call = (calls.c.turn_id == turn_id, calls.c.position == call.position)
        changes = _changes(decision, now_ms)
        tx.execute(update(calls).where(*is_call).values(**changes))
        made = [{"kind": "approval", "name": call.name, "outcome": changes["approval"]}]
        about = {"session_id": turn.session_id, "turn_id": turn.id, "subject": call.id, "decisions": made}
        whose = {"user": user_of_lane(tx, turn.lane), "agent": turn.agent}
        note_act(tx, "approval.decided", decision.by, workspace=turn.workspace, at_ms=now_ms, **whose, **about)
        return read_turn(tx, turn_row(tx, tenant, turn_id))


def _waiting(tx: Connection, turn: Turn, call_id: str) -> Call:
    query = select(calls).where(calls.c.turn_id == turn.id, calls.c.id == call_id)
    row = tx.execute(query).mappings().first()
    if row is None:
        raise NotFound(f"turn {turn.id} has no tool call {call_id}")
    call = rows.call(row)
    if call.approval is None:
        raise Conflict(f"the call {call_id} needs no approval", "not-waiting")
    if not call.is_waiting or turn.is_finished:
        said = call.approval if call.approval != "waiting" else f"the turn is {turn.status}"
        raise Conflict(f"the call {call_id} is already decided: {said}", "already-decided")
    return call


def _changes(decision: Decision, now_ms: int) -> dict[str, Any]:
    if decision.verdict == "reject":
        why = f": {decision.reason}" if decision.reason else "."
        text = f"Denied by a person{why}"
        return {"approval": "rejected", "status": "denied", "finished_ms": now_ms, "content": text}
    if decision.verdict == "edit":
        return {"approval": "edited", "arguments": decision.arguments}
    return {"approval": "approved"}
