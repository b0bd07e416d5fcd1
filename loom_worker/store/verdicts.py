"""Verdicts of judges: claimed by compare-and-set, stored once, and never lost once they were paid for.

A verdict is checked like a tool call: by its own send number and an unfinished turn, not by the turn's fence. What its
model cost is booked even where the verdict comes too late: on its row while the turn goes on, by itself once that has
ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, insert, select, update

from loom_worker.core.values.budgets import Settlement
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.judges import OPEN_VERDICT, Verdict
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Claim, answer, standing
from loom_worker.core.values.workspaces import NO_RULES, Rules
from loom_worker.store import rows
from loom_worker.store.budgets import settle
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import Lock
from loom_worker.store.fence import check_fence
from loom_worker.store.ledger import Charge, charge
from loom_worker.store.schema import calls, sessions, steps, turns, unfinished, verdicts
from loom_worker.store.turn_statements import RULES

_DONE = ("status", "score", "critique", "error", "model", "finished_ms")
"""Columns that the end of a verdict sets."""

_THIS = and_(
    verdicts.c.turn_id == bindparam("of_turn"),
    verdicts.c.reply_n == bindparam("of_reply"),
    verdicts.c.position == bindparam("at"),
)
_TURN_GOES_ON = select(turns.c.id).where(turns.c.id == verdicts.c.turn_id, unfinished()).exists()
_TURN_WANTS_IT = (
    select(turns.c.id)
    .where(turns.c.id == verdicts.c.turn_id, unfinished())
    .where(func.coalesce(turns.c.cancel, "finish") == "finish")
    .exists()
)
_IS_OURS = and_(_THIS, verdicts.c.sends == bindparam("was_sends"))
_INSERT = insert(verdicts)
_FIND = select(verdicts).where(_THIS)
_SEND = (
    update(verdicts)
    .where(_IS_OURS, verdicts.c.status == bindparam("was_status"))
    .values(
        status="pending",
        sends=verdicts.c.sends + 1,
        deaths=verdicts.c.deaths + bindparam("died"),
        sent_ms=bindparam("now_ms"),
        worker=None,
        started_ms=None,
    )
)
_CLAIM = (
    update(verdicts)
    .where(_IS_OURS, verdicts.c.status == "pending", _TURN_WANTS_IT)
    .values(status="running", worker=bindparam("by"), started_ms=bindparam("now_ms"))
)
_CLOSE = (
    update(verdicts)
    .where(_IS_OURS, verdicts.c.status.in_(OPEN_VERDICT), _TURN_GOES_ON)
    .values({name: bindparam(f"new_{name}") for name in _DONE})
)
_LEFT = select(func.count()).where(
    verdicts.c.turn_id == bindparam("of_turn"),
    verdicts.c.reply_n == bindparam("of_reply"),
    verdicts.c.status.in_(OPEN_VERDICT),
)
_PAY = update(verdicts).where(_THIS).values(usage=bindparam("new_usage"))
_USED = select(turns.c.usage).where(turns.c.id == bindparam("of_turn"), unfinished())
_USE = update(turns).where(turns.c.id == bindparam("of_turn")).values(usage=bindparam("new_usage"))
_OWNER = (
    select(turns.c.lane, turns.c.session_id, turns.c.workspace, turns.c.agent, turns.c.input, turns.c.traceparent)
    .add_columns(*(sessions.c[name] for name in rows.CHOSEN))
    .add_columns(RULES)
    .join(sessions, sessions.c.lane == turns.c.lane)
    .where(turns.c.id == bindparam("of_turn"), unfinished())
)
_SAID = (
    select(steps)
    .where(steps.c.turn_id == bindparam("of_turn"), steps.c.n <= bindparam("of_reply"))
    .where(steps.c.kind.in_(("reply", "shaped", "judged")))
    .order_by(steps.c.n)
)
_RESULTS = (
    select(calls.c.name, calls.c.content)
    .where(calls.c.turn_id == bindparam("of_turn"), calls.c.status == "completed")
    .where(calls.c.reply_n < bindparam("of_reply"))
    .order_by(calls.c.position)
)


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer that is to be judged, and whose it is."""

    agent: str
    choice: Choice
    caller: Caller
    question: str
    answer: str
    results: tuple[tuple[str, str], ...]
    """The tools that were called before it, each with what the model read of its result."""
    rules: Rules = NO_RULES


class Verdicts:
    """The table of verdicts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def send(self, claim: Claim, again: Sequence[Verdict], *, now_ms: int) -> tuple[Verdict, ...]:
        """Mark verdicts as sent once more; one that has changed since it was read is left alone.

        Returns:
            Those that were marked, with their new send number.

        Raises:
            Fenced: another worker owns the turn.
        """
        found = []
        with self._database.write(lock=Lock.lane(claim.turn.lane)) as tx:
            check_fence(tx, claim)
            for verdict in again:
                was = {"was_status": verdict.status, "died": verdict.status == "running", "now_ms": now_ms}
                if tx.execute(_SEND, _ours(claim.turn.id, verdict) | was).rowcount == 1:
                    found.append(rows.verdict(tx.execute(_FIND, _place(claim.turn.id, verdict)).mappings().one()))
        return tuple(found)

    def answer(self, turn_id: str, reply_n: int) -> JudgedAnswer | None:
        """What is to be judged: all that a reader has of the answer; None if the turn has ended."""
        of_reply = {"of_turn": turn_id, "of_reply": reply_n}
        with self._database.read() as tx:
            row = tx.execute(_OWNER, {"of_turn": turn_id}).mappings().first()
            if row is None:
                return None
            trace_id = rows.trace_id(row["traceparent"])
            said = standing(rows.step(step) for step in tx.execute(_SAID, of_reply).mappings())
            results = tx.execute(_RESULTS, of_reply).all()
        return JudgedAnswer(
            agent=row["agent"],
            choice=rows.choice(row),
            caller=Caller(row["lane"], row["session_id"], row["workspace"], turn_id, "judge", row["agent"], trace_id),
            question=row["input"],
            answer=answer(said),
            results=tuple((name, content or "") for name, content in results),
            rules=Rules.of(row["rules"]),
        )

    def claim(
        self, turn_id: str, reply_n: int, position: int, send: int, *, worker: str, now_ms: int
    ) -> Verdict | None:
        """Take a verdict that was sent; None if it was taken, sent again, or its turn has ended."""
        mine = {"of_turn": turn_id, "of_reply": reply_n, "at": position}
        with self._database.write(lock=Lock.turn(turn_id)) as tx:
            if tx.execute(_CLAIM, mine | {"was_sends": send, "by": worker, "now_ms": now_ms}).rowcount != 1:
                return None
            return rows.verdict(tx.execute(_FIND, mine).mappings().one())

    def close(self, caller: Caller, done: Verdict, settlement: Settlement | None) -> int | None:
        """Store a verdict, and book what it cost in any case.

        Args:
            caller: whose turn it is.
            settlement: what it takes off budgets; None: no model was asked.

        Returns:
            How many of its panel's verdicts are still open; None if it came too late and was dropped.
        """
        turn_id, now_ms = caller.turn_id, done.finished_ms or 0
        with self._database.write(lock=Lock.lane(caller.lane)) as tx:
            new = {f"new_{name}": getattr(done, name) for name in _DONE}
            is_stored = tx.execute(_CLOSE, _ours(turn_id, done) | new).rowcount == 1
            if settlement is not None and (is_stored or not _has(tx, turn_id, done)):
                _book(tx, caller, done, settlement, now_ms=now_ms)
            if not is_stored:
                return None
            return int(tx.execute(_LEFT, {"of_turn": turn_id, "of_reply": done.reply_n}).scalar_one())

    def give_up(self, claim: Claim, dead: Sequence[Verdict]) -> bool:
        """Store that judges gave no verdict; False if one of them did after all.

        Raises:
            Fenced: another worker owns the turn.
        """
        with self._database.write(lock=Lock.lane(claim.turn.lane)) as tx:
            check_fence(tx, claim)
            for verdict in dead:
                new = {f"new_{name}": getattr(verdict, name) for name in _DONE}
                if tx.execute(_CLOSE, _ours(claim.turn.id, verdict) | new).rowcount != 1:
                    return False
        return True


def insert_verdicts(tx: Connection, turn_id: str, new: Sequence[Verdict]) -> None:
    """Write verdicts that are about to be asked for."""
    tx.execute(_INSERT, [{"turn_id": turn_id, **rows.verdict_columns(verdict)} for verdict in new])


def _has(tx: Connection, turn_id: str, done: Verdict) -> bool:
    """True if this very verdict is stored: its commit was done although it was reported to have failed."""
    row = tx.execute(_FIND, _place(turn_id, done)).mappings().first()
    marks = ("sends", "worker", "status", "finished_ms")
    return row is not None and all(row[name] == getattr(done, name) for name in marks)


def _book(tx: Connection, caller: Caller, done: Verdict, settlement: Settlement, *, now_ms: int) -> None:
    """Add a cost to the verdict's row and to the turn's usage; where that has ended, to session and ledger."""
    settle(tx, settlement, now_ms=now_ms)
    used: Any = tx.execute(_USED, {"of_turn": caller.turn_id}).scalar()
    row = tx.execute(_FIND, _place(caller.turn_id, done)).mappings().first()
    if used is None or row is None:
        names = (caller.workspace, caller.session_id, caller.agent, done.model or "")
        late = Charge(*names, done.usage, caller.turn_id, kind="judge")
        charge(tx, caller.lane, late, now_ms=now_ms)
        return
    spent = Usage.from_json(row["usage"]) + done.usage
    tx.execute(_PAY, _place(caller.turn_id, done) | {"new_usage": spent.as_json()})
    total = Usage.from_json(used) + done.usage
    tx.execute(_USE, {"of_turn": caller.turn_id, "new_usage": total.as_json()})


def _place(turn_id: str, verdict: Verdict) -> dict[str, Any]:
    return {"of_turn": turn_id, "of_reply": verdict.reply_n, "at": verdict.position}


def _ours(turn_id: str, verdict: Verdict) -> dict[str, Any]:
    return _place(turn_id, verdict) | {"was_sends": verdict.sends}
