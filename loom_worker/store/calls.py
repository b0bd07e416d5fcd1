"""Tool calls: claimed by compare-and-set, checked by their own send number and an unfinished turn.

They are not checked against the turn's fence, for a result may arrive after the turn was entered again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, String, and_, bindparam, case, func, or_, select, update

from loom_worker.core.values.calls import Call
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Claim
from loom_worker.core.values.workspaces import NO_RULES, Rules
from loom_worker.store import rows
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import Lock
from loom_worker.store.fence import check_fence
from loom_worker.store.schema import agent_errors, calls, sessions, steps, turns, unfinished
from loom_worker.store.tables import blobs
from loom_worker.store.turn_statements import RULES

_DONE = ("status", "content", "finished_ms", "error_id", "ref", "approval", "guard", "trace")
"""Columns that the end of a call sets."""
HOUR_MS = 3600 * 1000


@dataclass(frozen=True, slots=True)
class CallOwner:
    """Whose call it is."""

    agent: str
    choice: Choice
    tool: str
    reply_n: int
    caller: Caller
    rules: Rules = NO_RULES


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a turn's calls once one of them has ended."""

    under_way: int
    """Calls that were sent and have no result yet; at 0 the turn is woken."""
    next: Call | None
    """A call that had waited and is now marked as sent: send it."""
    told: int
    """The id of the last event that the turn's journal knows; its log may have lost some of them."""
    fence: int
    """Fence of the turn's latest owner."""


class Calls:
    """The table of tool calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def send(self, claim: Claim, sent: Sequence[Call], *, now_ms: int) -> tuple[Call, ...]:
        """Mark calls as sent once more; the result of an earlier sending will not count.

        A call that has changed since it was read is left alone: a worker that took it late may be running it.

        Returns:
            The calls that were marked, with their new send number.

        Raises:
            Fenced: another worker owns the turn.
        """
        again = {"status": "pending", "sends": calls.c.sends + 1, "sent_ms": now_ms, "worker": None, "started_ms": None}
        with self._database.write(lock=Lock.lane(claim.turn.lane)) as tx:
            check_fence(tx, claim)
            marked = [
                call.position
                for call in sent
                if tx.execute(update(calls).where(_as_seen(claim.turn.id, call)).values(**again)).rowcount == 1
            ]
            here = and_(calls.c.turn_id == claim.turn.id, calls.c.position.in_(marked))
            found = tx.execute(select(calls).where(here).order_by(calls.c.position)).mappings().all()
        return tuple(rows.call(row) for row in found)

    def claim(self, turn_id: str, position: int, send: int, *, worker: str, now_ms: int, durable: bool) -> Call | None:
        """Take a call that was sent; None if it was taken, sent again, or its turn has ended.

        Args:
            send: the send number of the message that asks for it.
            durable: the claim must survive power loss: the call may not run twice.
        """
        mine = {"of_turn": turn_id, "at": position}
        taken = {"was_sends": send, "by": worker, "moment_ms": now_ms}
        with self._database.write(durable=durable, lock=Lock.turn(turn_id)) as tx:
            if tx.execute(_CLAIM, mine | taken).rowcount != 1:
                return None
            row = tx.execute(_CALL, mine).mappings().one()
        return rows.call(row)

    def close(self, turn_id: str, call: Call, *, concurrency: int = 0) -> Left | None:
        """Store the result of a call that is still ours: its status, content, finished_ms and what they refer to.

        Args:
            concurrency: calls of the turn that may be under way; where there are fewer, the next is marked as sent.

        Returns:
            What is left of the turn's calls; None if the result came too late and was dropped.
        """
        was_approval = "waiting" if call.status == "denied" else call.approval
        mine = {"of_turn": turn_id, "at": call.position, "was_sends": call.sends, "was_approval": was_approval}
        with self._database.write(lock=Lock.turn(turn_id)) as tx:
            if tx.execute(_CLOSE, mine | {f"new_{name}": getattr(call, name) for name in _DONE}).rowcount != 1:
                return None
            under_way, unsent, told, fence = tx.execute(_LEFT, {"of_turn": turn_id}).one()
            following = None
            if unsent and 0 < under_way < concurrency:  # the last one wakes the turn, which then sends the others
                following = _send_next(tx, turn_id, now_ms=call.finished_ms or 0)
            return Left(under_way + (following is not None), following, told, fence)

    def approve(self, turn_id: str, call: Call) -> bool:
        """Let a call run that waits for a person; False if a person has decided on it meanwhile."""
        waits = and_(_is_call(turn_id, call.position), calls.c.approval == "waiting", _is_open(), _turn_goes_on())
        with self._database.write(lock=Lock.turn(turn_id)) as tx:
            return tx.execute(update(calls).where(waits).values(approval=call.approval)).rowcount == 1

    def owner_of(self, turn_id: str, position: int) -> CallOwner | None:
        """Whose call it is; None if the turn or the call is gone."""
        with self._database.read() as tx:
            row = tx.execute(_OWNER, {"of_turn": turn_id, "at": position}).mappings().one_or_none()
        if row is None:
            return None
        trace_id = rows.trace_id(row["traceparent"])
        ids = (row["lane"], row["session_id"], row["workspace"], turn_id, row["id"])
        caller = Caller(*ids, row["agent"], trace_id, row["run_id"] or "")
        return CallOwner(row["agent"], rows.choice(row), row["name"], row["reply_n"], caller, Rules.of(row["rules"]))


def tool_counts(database: Database, *, now_ms: int) -> Json:
    """Turns that wait for a person, errors of tools in the last hour, and large results, over all workspaces."""
    awaiting = select(func.count()).where(turns.c.completed_ms.is_(None), turns.c.status == "requires_action")
    failed = select(func.count()).where(agent_errors.c.at_ms > now_ms - HOUR_MS, agent_errors.c.tool_name != "")
    stored = select(func.count()).select_from(blobs)
    with database.read() as tx:
        return {
            "awaiting_approval": tx.execute(awaiting).scalar_one(),
            "errors_last_hour": tx.execute(failed).scalar_one(),
            "large_results": tx.execute(stored).scalar_one(),
        }


def _send_next(tx: Connection, turn_id: str, *, now_ms: int) -> Call | None:
    """Mark the first call that may be sent as sent; one that a person or an earlier twin holds up keeps waiting."""
    free = or_(calls.c.approval.is_(None), calls.c.approval != "waiting")
    unsent = and_(calls.c.turn_id == turn_id, calls.c.status == "pending", calls.c.sent_ms.is_(None), free)
    unsent = and_(unsent, calls.c.awaits.is_(None))  # those are no tool's: the turn itself begins them
    for row in tx.execute(select(calls).where(unsent).order_by(calls.c.position)).mappings():
        if not _has_twin(tx, row):
            values = {"sends": row["sends"] + 1, "sent_ms": now_ms}
            tx.execute(update(calls).where(_is_call(turn_id, row["position"])).values(**values))
            return rows.call({**row, **values})
    return None


def _has_twin(tx: Connection, row: rows.Row) -> bool:
    """True if an earlier call asks the same; whether one result serves both is for the turn to decide."""
    earlier = select(calls.c.arguments).where(
        calls.c.turn_id == row["turn_id"], calls.c.position < row["position"], calls.c.name == row["name"]
    )
    return row["arguments"] in tx.execute(earlier).scalars().all()


def _is_call(turn_id: str, position: int) -> ColumnElement[bool]:
    return and_(calls.c.turn_id == turn_id, calls.c.position == position)


def _as_seen(turn_id: str, call: Call) -> ColumnElement[bool]:
    """The call, if nobody has taken, sent or closed it since."""
    seen = (
        calls.c.sends == call.sends,
        calls.c.status == call.status,
        calls.c.worker.is_not_distinct_from(call.worker),
    )
    return and_(_is_call(turn_id, call.position), *seen)


def _is_open() -> ColumnElement[bool]:
    return or_(calls.c.status == "pending", calls.c.status == "running")


def _turn_goes_on() -> ColumnElement[bool]:
    return select(turns.c.id).where(turns.c.id == calls.c.turn_id, unfinished()).exists()


# Statements that every call runs are built once: building and hashing them took a quarter of a tool worker's time.
_THIS = and_(calls.c.turn_id == bindparam("of_turn"), calls.c.position == bindparam("at"))
_CALL = select(calls).where(_THIS)
_CLAIM = (
    update(calls)
    .where(_THIS, calls.c.sends == bindparam("was_sends"), calls.c.status == "pending", _turn_goes_on())
    .values(status="running", worker=bindparam("by"), started_ms=bindparam("moment_ms"))
)
_CLOSE = (
    update(calls)
    .where(_THIS, calls.c.sends == bindparam("was_sends"), _is_open(), _turn_goes_on())
    # A person's decision of a moment ago stands: neither the policy nor a cancel overrides it.
    .where(calls.c.approval.is_not_distinct_from(bindparam("was_approval", type_=String)))
    .values({name: bindparam(f"new_{name}") for name in _DONE})
)
_TOLD = (
    select(steps.c.payload["last"].as_integer())
    .where(steps.c.turn_id == bindparam("of_turn"), steps.c.kind == "events")
    .order_by(steps.c.n.desc())
    .limit(1)
    .scalar_subquery()
)
_FENCE = select(turns.c.fence).where(turns.c.id == bindparam("of_turn")).scalar_subquery()
_LEFT = (
    select(func.count(case((calls.c.sent_ms.is_not(None), 1))), func.count(case((calls.c.sent_ms.is_(None), 1))))
    .add_columns(func.coalesce(_TOLD, 1), _FENCE)
    .where(calls.c.turn_id == bindparam("of_turn"), _is_open())
)
"""Calls without a result, those that were sent and those that were not; the turn's last journaled event, and its fence.
Journals that older versions began do not say it."""
_OWNER = (
    select(turns.c.lane, turns.c.session_id, turns.c.workspace, turns.c.agent, turns.c.traceparent)
    .add_columns(turns.c.run_id, calls.c.id, calls.c.name, calls.c.reply_n, *(sessions.c[name] for name in rows.CHOSEN))
    .add_columns(RULES)
    .join(calls, calls.c.turn_id == turns.c.id)
    .join(sessions, sessions.c.lane == turns.c.lane)
    .where(_THIS)
)
