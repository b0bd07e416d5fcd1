"""Tool calls: claimed by compare-and-set, checked by their own send number and an unfinished turn.

They are not checked against the turn's fence, for a result may arrive after the turn was entered again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, func, select, update

from loom_worker.store import rows
from loom_worker.store.claims import check_fence
from loom_worker.store.database import Database
from loom_worker.store.schema import calls, sessions, turns, unfinished
from loom_worker.values.sessions import Choice
from loom_worker.values.tools import Caller
from loom_worker.values.turns import Call, Claim


@dataclass(frozen=True, slots=True)
class CallOwner:
    """Where a call belongs."""

    agent: str
    choice: Choice
    tool: str
    reply_n: int
    caller: Caller


class Calls:
    """The table of tool calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def send(self, claim: Claim, sent: Sequence[Call], *, now_ms: int) -> tuple[Call, ...]:
        """Mark calls as sent once more; what an earlier sending of them still does will not count.

        A call that has changed since it was looked at is left alone: a worker that took it late may be running it.

        Returns:
            The calls that were marked, with their new send number.

        Raises:
            Fenced: another worker owns the turn.
        """
        again = {"status": "pending", "sends": calls.c.sends + 1, "sent_ms": now_ms, "worker": None, "started_ms": None}
        with self._database.write() as tx:
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
        mine = and_(_is_call(turn_id, position), calls.c.sends == send, calls.c.status == "pending", _turn_goes_on())
        with self._database.write(durable=durable) as tx:
            taken = {"status": "running", "worker": worker, "started_ms": now_ms}
            if tx.execute(update(calls).where(mine).values(**taken)).rowcount != 1:
                return None
            row = tx.execute(select(calls).where(_is_call(turn_id, position))).mappings().one()
        return rows.call(row)

    def close(self, turn_id: str, call: Call) -> int | None:
        """Store the result of a call that is still ours: its status, content and finished_ms.

        Returns:
            How many calls of the turn are still open; None if the result came too late and was dropped.
        """
        mine = and_(_is_call(turn_id, call.position), calls.c.sends == call.sends, _is_open(), _turn_goes_on())
        with self._database.write() as tx:
            done = {"status": call.status, "content": call.content, "finished_ms": call.finished_ms}
            if tx.execute(update(calls).where(mine).values(**done)).rowcount != 1:
                return None
            still_open = select(func.count()).where(calls.c.turn_id == turn_id, _is_open())
            return int(tx.execute(still_open).scalar_one())

    def owner_of(self, turn_id: str, position: int) -> CallOwner | None:
        """Whose call it is; None if the turn or the call is gone."""
        of_turn = (turns.c.lane, turns.c.session_id, turns.c.workspace, turns.c.agent)
        chosen = (sessions.c[name] for name in rows.CHOSEN)
        query = select(*of_turn, calls.c.id, calls.c.name, calls.c.reply_n, *chosen)
        query = query.join(calls, calls.c.turn_id == turns.c.id).join(sessions, sessions.c.lane == turns.c.lane)
        with self._database.read() as tx:
            row = tx.execute(query.where(_is_call(turn_id, position))).mappings().one_or_none()
        if row is None:
            return None
        caller = Caller(row["lane"], row["session_id"], row["workspace"], turn_id, row["id"])
        return CallOwner(row["agent"], rows.choice(row), row["name"], row["reply_n"], caller)


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
    return calls.c.status.in_(("pending", "running"))


def _turn_goes_on() -> ColumnElement[bool]:
    return select(turns.c.id).where(turns.c.id == calls.c.turn_id, unfinished()).exists()
