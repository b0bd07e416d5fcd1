"""What is remembered of a session beside its messages: read with every turn, changed by one worker at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, bindparam, case, func, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import MemoryState, Remembered, Snapshot
from loom_worker.core.values.pages import Page
from loom_worker.core.values.sessions import Message, Session
from loom_worker.core.values.turns import Claim
from loom_worker.store import ledger, recalled, rows, snapshots
from loom_worker.store.claims import check_fence
from loom_worker.store.database import Database
from loom_worker.store.ledger import Charge
from loom_worker.store.schema import memory, memory_snapshots, messages
from loom_worker.store.sessions import find_lane, found, of_lane
from loom_worker.store.snapshots import NewSnapshot

AHEAD_MS = 60_000
"""A mark that lies farther ahead was set by a clock that is; it is due all the same."""

_OURS = memory.c.lane == bindparam("our_lane")
_STATE = select(memory).where(_OURS)
_l1 = select(messages).where(messages.c.lane == bindparam("our_lane"), messages.c.n >= bindparam("first_n"))
_l1 = _l1.limit(bindparam("most", type_=Integer))
_LATEST, _OLDEST = _l1.order_by(messages.c.n.desc()), _l1.order_by(messages.c.n)

_held = upsert(memory).values({name: bindparam(name) for name in ("lane", "held_by", "held_ms")})
_HOLD = _held.on_conflict_do_update(
    index_elements=["lane"], set_={"held_by": _held.excluded.held_by, "held_ms": _held.excluded.held_ms}
)
_seen = bindparam("seen_due_ms", type_=BigInteger)
_LET_GO = (
    update(memory)
    .where(_OURS, memory.c.held_by == bindparam("holder"))
    .values(
        held_by=None,
        held_ms=None,
        due_ms=case((bindparam("is_done") & (memory.c.due_ms == _seen), None), else_=memory.c.due_ms),
    )
    .returning(memory.c.due_ms)
)
_CHANGED = ("first_n", "l2_text", "l2_from_n", "schemas", "refs", "changes")
_APPLY = (
    update(memory)
    .where(_OURS, memory.c.version == bindparam("old_version"))
    .values(version=memory.c.version + 1, **{name: bindparam(name) for name in _CHANGED})
)
_DUE = select(memory.c.lane).order_by(memory.c.due_ms)
_SINCE = _DUE.where(memory.c.due_ms <= bindparam("due_ms"))
_AHEAD = _DUE.where(memory.c.due_ms > bindparam("due_ms"))
_PAGE = (
    select(messages)
    .where(messages.c.lane == bindparam("our_lane"))
    .order_by(messages.c.n)
    .limit(bindparam("most", type_=Integer))
    .offset(bindparam("skipped", type_=Integer))
)
_COUNT = select(func.count()).where(messages.c.lane == bindparam("our_lane"))


@dataclass(frozen=True, slots=True)
class Held:
    """A memory that this worker may compress."""

    session: Session
    state: MemoryState
    due_ms: int | None
    """Since when it is due, as it was when it was claimed."""


class Memories:
    """The tables of memory."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, lane: str, *, limit: int, claim: Claim | None = None) -> Remembered:
        """What a turn begins with; costs the same at any length of the session.

        Args:
            limit: most messages of L1, the newest. A turn that it cuts is left out: L1 begins with a user's message.
            claim: the turn that is to begin with it. What is read is then the session as it was before this turn: a
                worker that slept while others ended the turn would otherwise find the answer in its own past.

        Raises:
            Fenced: another worker owns the turn, or it is finished or deleted.
        """
        with self._database.read() as tx:
            if claim is not None:
                check_fence(tx, claim)
            state = _state(tx, lane)
            wanted = {"our_lane": lane, "first_n": state.first_n, "most": limit}
            newest_first = tx.execute(_LATEST, wanted).mappings().all()
            promoted = recalled.named(tx, lane, state.promoted)
        history = [rows.message(row) for row in reversed(newest_first)]
        begin = next((at for at, message in enumerate(history) if message.chat.role == "user"), len(history))
        return Remembered(state, tuple(history[begin:]), promoted)

    def is_there(self, lane: str) -> bool:
        """False for the memory of a session that is deleted."""
        with self._database.read() as tx:
            return find_lane(tx, lane) is not None

    def due(self, *, due_before_ms: int, limit: int) -> tuple[str, ...]:
        """Lanes whose L1 is to be compressed since then or longer, those that wait longest first."""
        with self._database.read() as tx:
            lanes = tx.execute(_SINCE.limit(limit), {"due_ms": due_before_ms}).scalars().all()
            if len(lanes) < limit:
                ahead = _AHEAD.limit(limit - len(lanes))
                lanes = [*lanes, *tx.execute(ahead, {"due_ms": due_before_ms + AHEAD_MS}).scalars()]
        return tuple(lanes)

    def claim(self, lane: str, *, worker: str, alive: frozenset[str], now_ms: int) -> Held | None:
        """Take the right to compress; only ``apply`` decides whose summary counts, so this merely spares work.

        Args:
            alive: workers that live; what another one holds, or this one itself, is taken from it.

        Returns:
            None if a living worker holds it, or the session is deleted.
        """
        with self._database.write() as tx:
            owner = find_lane(tx, lane)
            row = tx.execute(_STATE, {"our_lane": lane}).mappings().first()
            if owner is None or (row is not None and _is_held(row, worker, alive)):
                return None
            tx.execute(_HOLD, {"lane": lane, "held_by": worker, "held_ms": now_ms})
        state, due_ms = (rows.memory_state(row), row["due_ms"]) if row is not None else (MemoryState(), None)
        return Held(rows.session(owner), state, due_ms)

    def release(self, lane: str, worker: str, *, is_done: bool, seen_due_ms: int | None) -> bool:
        """Give the right to compress back, if it is still this worker's.

        Args:
            is_done: the pressure that was looked at is gone, so it is not due any more.
            seen_due_ms: since when it was due when it was claimed.

        Returns:
            True if it has become due again meanwhile: claim it again, for whoever rang was turned away.
        """
        with self._database.write() as tx:
            ours = {"our_lane": lane, "holder": worker, "is_done": is_done, "seen_due_ms": seen_due_ms}
            due_ms = tx.execute(_LET_GO, ours).scalar()
        return due_ms is not None and due_ms != seen_due_ms

    def oldest(self, lane: str, state: MemoryState, *, limit: int) -> tuple[Message, ...]:
        """The oldest messages of L1, whole turns of them.

        Args:
            limit: most messages, unless the first turn alone has more.
        """
        with self._database.read() as tx:
            wanted = {"our_lane": lane, "first_n": state.first_n, "most": limit + 1}
            listed = [rows.message(row) for row in tx.execute(_OLDEST, wanted).mappings()]
        if len(listed) <= limit:
            return tuple(listed)
        whole = tuple(message for message in listed[:limit] if message.turn_id != listed[-1].turn_id)
        if whole or listed[0].turn_id != listed[limit].turn_id:
            return whole
        return self.oldest(lane, state, limit=2 * limit)

    def apply(
        self,
        lane: str,
        before: MemoryState,
        after: MemoryState,
        *,
        snapshot: NewSnapshot | None,
        charge: Charge | None,
        now_ms: int,
    ) -> bool:
        """Put a claimed session's memory in place of the one it was made from, with the snapshot that belongs to it.

        What was promoted stays as it is. The charge is written in any case: the money is spent.

        Returns:
            False if the memory has changed since ``before``, or the session is deleted: nothing else was written.
        """
        change = {"our_lane": lane, "old_version": before.version, **rows.memory_columns(after)}
        with self._database.write(durable=True) as tx:
            is_applied = tx.execute(_APPLY, change).rowcount == 1
            if is_applied and snapshot is not None:
                snapshots.add(tx, of_lane(tx, lane), snapshot, now_ms=now_ms)
            if charge is not None:
                ledger.charge(tx, lane, charge, now_ms=now_ms)
        return is_applied

    def promote(
        self,
        workspace: str,
        session_id: str,
        message_ids: Sequence[str],
        *,
        budget_tokens: int,
        tokens: Callable[[Sequence[Message]], int],
    ) -> int:
        """Recall messages into the context, beside those that are; twice is as once.

        Args:
            budget_tokens: for all recalled messages together.
            tokens: counts what messages take; called outside the transaction.

        Returns:
            The tokens of all recalled messages.

        Raises:
            NotFound: the workspace has no such session.
            Invalid: the session has no such message, or all would be over the budget (slug
                ``recall-budget-exceeded``); nothing was changed.
        """
        return self.promote_in_lane(
            self._lane(workspace, session_id), message_ids, budget_tokens=budget_tokens, tokens=tokens
        )

    def promote_in_lane(
        self,
        lane: str,
        message_ids: Sequence[str],
        *,
        budget_tokens: int,
        tokens: Callable[[Sequence[Message]], int],
    ) -> int:
        """As ``promote``, for a tool that knows the session's internal key."""
        return recalled.promote(self._database, lane, message_ids, budget_tokens=budget_tokens, tokens=tokens)

    def clear_promoted(self, workspace: str, session_id: str) -> int:
        """Take all recalled messages out of the context; return how many they were.

        Raises:
            NotFound: the workspace has no such session.
        """
        return self.clear_promoted_in_lane(self._lane(workspace, session_id))

    def clear_promoted_in_lane(self, lane: str) -> int:
        """As ``clear_promoted``, for a tool that knows the session's internal key."""
        with self._database.write(durable=True) as tx:
            return recalled.clear(tx, lane)

    def page_from(self, lane: str, *, offset: int, limit: int) -> tuple[tuple[Message, ...], int]:
        """Messages of a session in their order, and how many it has.

        Args:
            offset: messages to leave out, counted from the oldest of the whole session.
        """
        with self._database.read() as tx:
            wanted = {"our_lane": lane, "most": limit, "skipped": offset}
            listed = tuple(rows.message(row) for row in tx.execute(_PAGE, wanted).mappings())
            return listed, tx.execute(_COUNT, {"our_lane": lane}).scalar_one()

    def snapshots(self, workspace: str, session_id: str, *, limit: int, after: str | None) -> Page[Snapshot]:
        """List a session's snapshots, the newest first; ``after`` is the id of the last one seen.

        Raises:
            NotFound: the workspace has no such session.
            Invalid: ``after`` is no id of a snapshot.
        """
        with self._database.read() as tx:
            return snapshots.page(tx, found(tx, workspace, session_id)["lane"], limit=limit, after=after)

    def totals(self, *, now_ms: int) -> Json:
        """Figures over all sessions: changes of their memories, snapshots, how many are due, and since how long."""
        sums = select(func.coalesce(func.sum(memory.c.version), 0))
        kept = select(func.count()).select_from(memory_snapshots)
        due = select(func.count(), func.min(memory.c.due_ms)).where(memory.c.due_ms.is_not(None))
        with self._database.read() as tx:
            changes, snapshots_kept = tx.execute(sums).scalar_one(), tx.execute(kept).scalar_one()
            sessions_due, oldest_ms = tx.execute(due).one()
        return {
            "changes": changes,
            "snapshots": snapshots_kept,
            "due": sessions_due,
            "oldest_due_age_s": None if oldest_ms is None else round((now_ms - oldest_ms) / 1000, 3),
        }

    def _lane(self, workspace: str, session_id: str) -> str:
        with self._database.read() as tx:
            return str(found(tx, workspace, session_id)["lane"])


def _state(tx: Connection, lane: str) -> MemoryState:
    row = tx.execute(_STATE, {"our_lane": lane}).mappings().first()
    return MemoryState() if row is None else rows.memory_state(row)


def _is_held(row: Any, worker: str, alive: frozenset[str]) -> bool:
    return row["held_by"] != worker and row["held_by"] in alive
