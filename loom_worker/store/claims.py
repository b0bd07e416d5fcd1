"""Who runs a turn: claims, which raise the fence (``fence.py``), attempts, parking and release."""

from dataclasses import dataclass
from enum import Enum

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    Integer,
    Select,
    String,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
)

from loom_worker.core import metrics
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import Verdict
from loom_worker.core.values.traces import TurnTrace, WorkerRun
from loom_worker.core.values.turns import CancelAction, Claim
from loom_worker.core.values.webhooks import Webhook
from loom_worker.core.values.workspaces import Rules
from loom_worker.store import rows
from loom_worker.store import turn_statements as statements
from loom_worker.store.agent_messages import has_messages
from loom_worker.store.budgets import read_ancestor_budgets
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import Lock
from loom_worker.store.fence import fenced_update, ours
from loom_worker.store.learned import ALL_AS_ACTIVATED, LearnedPolicies, pin
from loom_worker.store.metric_values import count
from loom_worker.store.prepared import PreparedStatement, Row
from loom_worker.store.schema import calls, sessions, turns, unfinished, verdicts
from loom_worker.store.tables import workspaces
from loom_worker.store.turns import read_calls

_MOMENT: BindParameter[int] = bindparam("before_ms", type_=BigInteger)
_MOST: BindParameter[int] = bindparam("most", type_=Integer)
_DISABLED = select(workspaces.c.name).where(workspaces.c.name == turns.c.workspace, workspaces.c.is_disabled).exists()
_VERDICTS = (
    select(verdicts).where(verdicts.c.turn_id == bindparam("our_id")).order_by(verdicts.c.reply_n, verdicts.c.position)
)


def _lane_after(lane: ColumnElement[str]) -> Select[tuple[str]]:
    return select(func.min(turns.c.lane)).where(unfinished(), turns.c.lane > lane)


_open = select(_lane_after(bindparam("after", type_=String)).scalar_subquery().label("lane")).cte(recursive=True)
_open = _open.union_all(
    select(_lane_after(_open.c.lane).correlate(_open).scalar_subquery()).where(_open.c.lane.is_not(None))
)
_FIRST_SEQ = select(func.min(turns.c.seq)).where(turns.c.lane == _open.c.lane, unfinished()).correlate(_open)
_MAY_BEGIN = and_(sessions.c.status == "active", ~_DISABLED)
_OPEN_LANES = PreparedStatement(
    select(turns.c.lane)
    .select_from(_open)
    .join(turns, and_(turns.c.lane == _open.c.lane, turns.c.seq == _FIRST_SEQ.scalar_subquery()))
    .join(sessions, sessions.c.lane == turns.c.lane)
    .where(
        turns.c.created_ms < _MOMENT,
        or_(_MAY_BEGIN, turns.c.started_ms.is_not(None), turns.c.deadline_ms <= _MOMENT),
    )
    .limit(_MOST)
)
"""From lane to lane, and of each lane only the first turn: the others cannot begin before it."""
_ANY_OPEN = PreparedStatement(select(turns.c.lane).where(unfinished()).limit(1))
_OF_TURN = select(calls.c.id).where(calls.c.turn_id == turns.c.id, calls.c.status == "pending")
_IS_ASKING = _OF_TURN.where(calls.c.approval == "waiting").exists()
_IS_GRANTED = or_(calls.c.approval == "approved", calls.c.approval == "edited")
_IS_UNSENT = _OF_TURN.where(_IS_GRANTED, calls.c.sends == 0).exists()
_child = turns.alias("child")
_AWAITED_LANES = PreparedStatement(
    select(turns.c.lane)
    .select_from(calls)
    .join(turns, turns.c.id == calls.c.turn_id)
    .outerjoin(_child, _child.c.id == calls.c.child_turn_id)
    .where(calls.c.awaits.is_not(None), calls.c.status == literal_column("'running'"))
    .where(turns.c.held_by.is_(None), turns.c.completed_ms.is_(None))
    .where(
        or_(
            and_(calls.c.awaits == "turn", or_(_child.c.id.is_(None), _child.c.completed_ms.is_not(None))),
            and_(calls.c.awaits == "messages", has_messages()),
            calls.c.wait_until_ms <= _MOMENT,
        )
    )
    .limit(_MOST)
)
"""Lanes of turns that wait for another one that has ended, or for messages that there are, or have waited long
enough."""
_ANSWERED_LANES = PreparedStatement(
    select(turns.c.lane)
    .where(turns.c.status == "requires_action", turns.c.held_by.is_(None), turns.c.completed_ms.is_(None))
    .where(or_(turns.c.cancel.is_not(None), ~_IS_ASKING, _IS_UNSENT))
    .limit(_MOST)
)


class Idle(Enum):
    """Why a lane has nothing to run."""

    EMPTY = "no unfinished turn is left, or the session is deleted"
    PAUSED = "the session is paused or archived, or its workspace is disabled"


@dataclass(frozen=True, slots=True)
class OpenLane:
    """A lane that has unfinished turns."""

    lane: str
    turns: tuple[tuple[int, str], ...]
    """(seq, turn id) of each, in order."""
    held_by: str | None
    """The worker that runs the first one, as far as the database knows."""


class Claims:
    """Claims, parks and releases turns."""

    def __init__(self, database: Database, learned: LearnedPolicies = ALL_AS_ACTIVATED) -> None:
        self._database = database
        self._learned = learned

    def claim(self, lane: str, *, worker: str, now_ms: int) -> Claim | Idle:
        """Give the lane's first unfinished turn to a worker, committed before anything of it runs.

        An attempt is charged if the last owner neither parked nor released the turn: it died.

        Returns:
            The claim, or why there is none.
        """
        with self._database.write(lock=Lock.lane(lane)) as tx:
            row = statements.HEAD.first(tx, {"our_lane": lane})
            if row is None:
                return Idle.EMPTY
            if _must_wait(row, now_ms):
                return Idle.PAUSED
            claimed_us, has_died = now_us(), row["held_by"] is not None
            changes = {
                "status": "in_progress",
                "fence": row["fence"] + 1,
                "held_by": worker,
                "deaths": row["deaths"] + has_died,
                "started_ms": row["started_ms"] or now_ms,
                "parked_until_ms": None,
                "claimed_us": claimed_us,
                "trace": _trace_of(row, claimed_us),
                "learned_version": pin(tx, row, self._learned),
            }
            statements.CLAIM.put(tx, {"our_id": row["id"], **changes})
            if has_died:  # not in memory: a turn that kills its workers may kill this one within a second
                count(tx, (metrics.TURN_DEATHS, ()))
            return _claim(tx, {**row, **changes})

    def park(self, claim: Claim, *, until_ms: int, run_ms: int) -> None:
        """Let the turn wait without an owner; nobody is charged for it.

        Args:
            run_ms: milliseconds the turn has run so far, over all its owners.

        Raises:
            Fenced: another worker owns the turn.
        """
        self._let_go(claim, parked_until_ms=until_ms, run_ms=run_ms)

    def release(self, claim: Claim, *, run_ms: int) -> None:
        """Give the turn back as it is, uncharged, for the next worker.

        Raises:
            Fenced: another worker owns the turn.
        """
        self._let_go(claim, parked_until_ms=None, run_ms=run_ms)

    def has_open_turns(self) -> bool:
        """True if any turn of any workspace has not ended."""
        with self._database.read() as tx:
            return _ANY_OPEN.first(tx, {}) is not None

    def open_lanes(self, *, created_before_ms: int, limit: int, after: str = "") -> tuple[str, ...]:
        """Lanes that could run a turn, in the order of their keys.

        Args:
            created_before_ms: lanes of younger turns alone are left out: their submitter is about to wake them itself.
            limit: most lanes.
            after: the last lane seen.
        """
        wanted = {"before_ms": created_before_ms, "most": limit, "after": after}
        with self._database.read() as tx:
            return tuple(row["lane"] for row in _OPEN_LANES.all(tx, wanted))

    def answered_lanes(self, *, limit: int) -> tuple[str, ...]:
        """Lanes whose turn waits for a person although all is decided, a decided call is not sent, or it is cancelled.

        The process that committed this may have died before waking the lane; the turn would wait for its timeout.
        """
        with self._database.read() as tx:
            return tuple(row["lane"] for row in _ANSWERED_LANES.all(tx, {"most": limit}))

    def awaited_lanes(self, *, now_ms: int, limit: int) -> tuple[str, ...]:
        """Lanes whose turn waits for other agents although it has its answer, or the time for it is up.

        Whoever ended the other turn, or sent the message, may have died before waking the lane.
        """
        with self._database.read() as tx:
            return tuple(row["lane"] for row in _AWAITED_LANES.all(tx, {"before_ms": now_ms, "most": limit}))

    def open_lane(self, lane: str) -> OpenLane:
        """The unfinished turns of a lane."""
        query = select(turns.c.seq, turns.c.id, turns.c.held_by).where(turns.c.lane == lane, unfinished())
        with self._database.read() as tx:
            found = tx.execute(query.order_by(turns.c.seq)).all()
        return OpenLane(lane, tuple((row.seq, row.id) for row in found), found[0].held_by if found else None)

    def resume(self, turn_id: str, *, fence: int) -> Claim | None:
        """The claim that another process of ours made, None if it does not hold any more."""
        with self._database.read() as tx:
            row = statements.OURS_WITH_SESSION.first(tx, {"our_id": turn_id, "our_fence": fence})
            return None if row is None else _claim(tx, row)

    def cancel_action(self, claim: Claim) -> CancelAction | None:
        """How the client asks a turn to end that is ours; None also once it is not."""
        with self._database.read() as tx:
            row = statements.STILL_OURS.first(tx, ours(claim))
        return None if row is None else row["cancel"]

    def webhook(self, claim: Claim) -> Webhook | None:
        """Where the end of a turn is to be reported now; None: nowhere, or the turn is deleted."""
        with self._database.read() as tx:
            row = tx.execute(select(turns).where(turns.c.id == claim.turn.id)).mappings().first()
        return None if row is None else rows.webhook(row)

    def is_ours(self, claim: Claim) -> bool:
        """Whether a turn still has the fence of this claim; False also once it is finished or deleted."""
        with self._database.read() as tx:
            return statements.STILL_OURS.first(tx, ours(claim)) is not None

    def _let_go(self, claim: Claim, *, parked_until_ms: int | None, run_ms: int) -> None:
        with self._database.write(lock=Lock.lane(claim.turn.lane)) as tx:
            trace = claim.trace_until(now_us(), "released" if parked_until_ms is None else "parked").as_json()
            values = {"held_by": None, "parked_until_ms": parked_until_ms, "run_ms": run_ms, "trace": trace}
            fenced_update(tx, claim, values)


def _must_wait(row: Row, now_ms: int) -> bool:
    """A queued turn waits while its session is paused or archived, or its workspace disabled.

    What has begun goes on, and a deadline holds.
    """
    is_over = row["deadline_ms"] is not None and row["deadline_ms"] <= now_ms
    is_held = row["session_status"] != "active" or Rules.of(row["rules"]).is_disabled
    return is_held and row["started_ms"] is None and not is_over


def _claim(tx: Connection, row: Row) -> Claim:
    is_new = row["fence"] == 1  # nobody ran it before, so it has no journal
    journal = () if is_new else tuple(map(rows.step, statements.STEPS.all(tx, {"our_id": row["id"]})))
    turn = rows.turn(row, calls=() if is_new else read_calls(tx, row["id"]))
    return Claim(
        turn=turn,
        steps=journal,
        rom=row["session_rom"],
        kernel=row["session_kernel"],
        choice=rows.choice({name: row[f"session_{name}"] for name in rows.CHOSEN}),
        user=row["session_user"],
        spent=Usage.from_json(row["session_usage"]),
        token_correction=row["session_token_correction"],
        memory_seen=row["session_memory_seen"],
        budget=row["session_budget"],
        run_budget=row["run_budget"],
        ancestor_budgets=read_ancestor_budgets(tx, turn.ancestors) if turn.ancestors else (),
        rules=Rules.of(row["rules"]),
        verdicts=() if is_new else read_verdicts(tx, row["id"]),
        claimed_us=row["claimed_us"] or 0,
        trace=TurnTrace.of(row["trace"]),
    )


def _trace_of(row: Row, now_us: int) -> Json:
    """What a turn's trace knows when it is claimed: also when its last owner was found dead, if it has died."""
    known = TurnTrace.of(row["trace"])
    if row["held_by"] is not None and row["claimed_us"] is not None:
        known = known.with_run(WorkerRun(row["fence"], row["held_by"], row["claimed_us"], now_us, "died"))
    return known.as_json()


def read_verdicts(tx: Connection, turn_id: str) -> tuple[Verdict, ...]:
    """The verdicts on a turn's answers, in the order of the answers and of the panel."""
    return tuple(rows.verdict(row) for row in tx.execute(_VERDICTS, {"our_id": turn_id}).mappings())
