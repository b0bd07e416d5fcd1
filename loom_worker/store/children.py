"""Turns that other turns wait for: accepted in the transaction that notes them in the call, so none is asked twice."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, bindparam, select, update

from loom_worker.core.errors import Interrupted
from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.children import Ancestor, ChildEnd, NewChild
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tenants import Tenant, WorkspaceUser
from loom_worker.core.values.traces import TurnTrace
from loom_worker.core.values.turns import Claim, NewTurn, Turn
from loom_worker.store.blobs import grant, readable
from loom_worker.store.cancel import interrupt_turn
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE, Lock
from loom_worker.store.fence import check_fence
from loom_worker.store.schema import answer_text, calls, turns, unfinished
from loom_worker.store.sessions import found_or_added
from loom_worker.store.submit import insert_turn
from loom_worker.store.turns import read_calls

_BEGIN = (
    update(calls)
    .where(calls.c.turn_id == bindparam("of_turn"), calls.c.position == bindparam("at"))
    .where(calls.c.status == "pending", calls.c.sends == 0)
    .values(
        status="running",
        sends=1,
        sent_ms=bindparam("now_ms"),
        started_ms=bindparam("now_ms"),
        child_turn_id=bindparam("child"),
        wait_until_ms=bindparam("until_ms"),
    )
)
_ENDS = select(
    *(turns.c[name] for name in ("id", "status", "reason", "error", "output_ref")),
    answer_text().label("output_text"),
).where(turns.c.id.in_(bindparam("ids", expanding=True)), ~unfinished())
_THERE = select(turns.c.id).where(turns.c.id.in_(bindparam("ids", expanding=True)))
_USED_BY_CHILDREN = select(turns.c.id, turns.c.usage).where(
    turns.c.parent_turn_id.in_(bindparam("ids", expanding=True))
)
_OPEN = select(turns.c.id).where(turns.c.parent_turn_id == bindparam("of_turn"), unfinished())


class Children:
    """The children of turns."""

    def __init__(self, database: Database, limits: LimitSettings, *, is_exported: bool = False) -> None:
        """Args: is_exported: True: traces are exported."""
        self._database = database
        self._limits = limits
        self._is_exported = is_exported

    def begin(self, claim: Claim, new: Sequence[NewChild], *, now_ms: int) -> tuple[tuple[Turn, ...], tuple[Call, ...]]:
        """Accept the turns that calls ask for, and let the calls wait for them.

        Returns:
            The turns, and all calls of the parent as they are now.

        Raises:
            Fenced: another worker owns the parent; nothing was accepted.
            Interrupted: a call has changed since it was read; nothing was accepted.
        """
        with self._database.write(durable=True, lock=WHOLE) as tx:
            check_fence(tx, claim)
            begun = tuple(self._accept(tx, claim, child, now_ms=now_ms) for child in new)
            for child, turn in zip(new, begun, strict=True):
                _wait(tx, claim, child.position, child.wait_until_ms, now_ms=now_ms, child=turn.id)
            return begun, read_calls(tx, claim.turn.id)

    def wait_for_messages(self, claim: Claim, call: Call, *, until_ms: int, now_ms: int) -> Call:
        """Let a call wait for messages; the call as it is now.

        Raises:
            Fenced: another worker owns the turn.
            Interrupted: the call has changed since it was read.
        """
        with self._database.write(lock=Lock.lane(claim.turn.lane)) as tx:
            check_fence(tx, claim)
            _wait(tx, claim, call.position, until_ms, now_ms=now_ms, child=None)
            return next(each for each in read_calls(tx, claim.turn.id) if each.position == call.position)

    def ends(self, turn_ids: Collection[str]) -> Mapping[str, ChildEnd]:
        """How children have ended, by their ids; those that go on are left out. A deleted one counts as cancelled."""
        ids = {"ids": list(turn_ids)}
        with self._database.read() as tx:
            ended = {row["id"]: row for row in tx.execute(_ENDS, ids).mappings()}
            there = set(tx.execute(_THERE, ids).scalars())
        gone = {
            turn_id: ChildEnd(turn_id, "cancelled", reason="deleted") for turn_id in turn_ids if turn_id not in there
        }
        return gone | {
            turn_id: ChildEnd(turn_id, **{name: row[name] for name in ChildEnd.__slots__ if name != "turn_id"})
            for turn_id, row in ended.items()
        }

    def cancel(self, claim: Claim, turn_id: str, *, now_ms: int) -> Turn | None:
        """Ask a child to end that nobody waits for any more; None if it has ended, or was asked before."""
        with self._database.write(durable=True, lock=WHOLE) as tx:
            return interrupt_turn(tx, claim.turn.workspace, turn_id, now_ms=now_ms, is_exported=self._is_exported)

    def _accept(self, tx: Connection, claim: Claim, child: NewChild, *, now_ms: int) -> Turn:
        parent = claim.turn
        tenant: Tenant = parent.workspace if claim.user is None else WorkspaceUser(parent.workspace, claim.user)
        metadata = {"parent_turn_id": parent.id, **({"run_id": parent.run_id} if parent.run_id else {})}
        session = NewSession(id=child.session_id, agent=child.agent, user=claim.user, metadata=metadata)
        owner = found_or_added(tx, tenant, session, now_ms=now_ms)
        grant(tx, readable(tx, child.refs, parent.lane), owner["lane"])
        new = NewTurn(
            input=child.input,
            metadata=metadata,
            traceparent=child.traceparent,
            trace=TurnTrace(has_client_span=True, is_unsampled=claim.trace.is_unsampled),
            request_id=parent.request_id,
            key_id=parent.key_id,
            guard=list(child.guard) or None,
            run_id=parent.run_id,
            ancestors=(*parent.ancestors, Ancestor(parent.id, parent.lane, parent.agent)),
            deadline_s=None if child.deadline_ms is None else max(child.deadline_ms - now_ms, 1) / 1000,
        )
        return insert_turn(tx, self._limits, owner, new, now_ms=now_ms, position=owner["queue_depth"])


def cancel_children(tx: Connection, workspace: str, turn_id: str, *, now_ms: int, is_exported: bool) -> list[Turn]:
    """Ask all children of a turn that ends to end, too; those that were asked."""
    open_ones = tx.execute(_OPEN, {"of_turn": turn_id}).scalars().all()
    asked = (interrupt_turn(tx, workspace, child, now_ms=now_ms, is_exported=is_exported) for child in open_ones)
    return [turn for turn in asked if turn is not None]


def usage_below(tx: Connection, turn_id: str) -> Usage:
    """What the agents have used that a turn asked, and those that they asked."""
    total, parents = Usage(), [turn_id]
    while parents:
        found = tx.execute(_USED_BY_CHILDREN, {"ids": parents}).all()
        total = sum((Usage.from_json(row.usage) for row in found), total)
        parents = [row.id for row in found]
    return total


def _wait(tx: Connection, claim: Claim, position: int, until_ms: int | None, *, now_ms: int, child: str | None) -> None:
    waits = {"of_turn": claim.turn.id, "at": position, "now_ms": now_ms, "child": child, "until_ms": until_ms}
    if tx.execute(_BEGIN, waits).rowcount != 1:
        raise Interrupted(f"Call {position} of turn {claim.turn.id} has changed meanwhile.")
