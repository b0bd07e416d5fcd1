"""A session's memory: its state, read with every turn and compressed by one worker at a time, and its snapshots."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    ScalarSelect,
    bindparam,
    case,
    func,
    insert,
    select,
    update,
)

from loom_worker.core.values.facts import LearnedFacts
from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import DatedSummary, MemoryState, Remembered, Snapshot
from loom_worker.core.values.pages import Page
from loom_worker.core.values.sessions import Message, Session
from loom_worker.core.values.spans import LaterSpans
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.traces import TracedTurn
from loom_worker.core.values.turns import Claim
from loom_worker.store import ledger, rows
from loom_worker.store import turn_statements as statements
from loom_worker.store.database import Database
from loom_worker.store.dated_summaries import add_dated
from loom_worker.store.engines.engine import WHOLE, Lock
from loom_worker.store.fact_changes import learn
from loom_worker.store.fence import check_fence
from loom_worker.store.ledger import Charge
from loom_worker.store.messages import clear_recalled, messages_with_ids, recall
from loom_worker.store.prepared import PreparedStatement
from loom_worker.store.schema import messages
from loom_worker.store.sessions import find_lane, found, of_lane
from loom_worker.store.tables import memory, memory_snapshots
from loom_worker.store.tenants import checked_cursor, newest_first, paged
from loom_worker.store.turn_records import add_spans, last_ended

MOST_CHARS = 32 * 1024 * 1024
"""Characters of all texts that are kept. A message takes about a kilobyte beside its text."""
_BESIDE_CHARS = 1_000
AHEAD_MS = 60_000
"""A due mark that is farther in the future was set by a clock that runs ahead; it counts as due."""

_OURS = memory.c.lane == bindparam("our_lane")

_HOLD = update(memory).where(_OURS).values(held_by=bindparam("holder"), held_ms=bindparam("since_ms"))
_is_over = bindparam("is_done") & (memory.c.due_ms == bindparam("seen_due_ms", type_=BigInteger))
_LET_GO = (
    update(memory)
    .where(_OURS, memory.c.held_by == bindparam("holder"))
    .values(
        held_by=None,
        held_ms=None,
        due_ms=case((_is_over, bindparam("again_ms", type_=BigInteger)), else_=memory.c.due_ms),
    )
    .returning(memory.c.due_ms)
)
_CHANGED = ("first_n", "l2_text", "l2_from_n", "dated_n", "schemas", "refs", "changes")
_APPLY = (
    update(memory)
    .where(_OURS, memory.c.version == bindparam("old_version"))
    .values(version=memory.c.version + 1, **{name: bindparam(name) for name in _CHANGED})
)
_DUE = select(memory.c.lane).order_by(memory.c.due_ms).limit(bindparam("most", type_=Integer))
_SINCE = PreparedStatement(_DUE.where(memory.c.due_ms <= bindparam("due_ms", type_=BigInteger)))
_AHEAD = PreparedStatement(_DUE.where(memory.c.due_ms > bindparam("due_ms", type_=BigInteger)))
_PAGE = (
    select(messages)
    .where(messages.c.lane == bindparam("our_lane"))
    .order_by(messages.c.n)
    .limit(bindparam("most", type_=Integer))
    .offset(bindparam("skipped", type_=Integer))
)
_UNDATED = select(func.count()).where(
    messages.c.lane == bindparam("our_lane"), messages.c.n > bindparam("after"), messages.c.n < bindparam("first_n")
)
_COUNT = select(func.count()).where(messages.c.lane == bindparam("our_lane"))
_INSERT_SNAPSHOT = insert(memory_snapshots)


@dataclass(frozen=True, slots=True)
class MemoryClaim:
    """The right to compress a session's memory, with the memory as it was when it was claimed."""

    session: Session
    state: MemoryState
    due_ms: int
    turn: TracedTurn | None = None
    """The turn with whose end it became due, whose trace tells of it."""


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A former L2 text that is to be kept."""

    id: str
    """``snap_…``; sorts by time."""
    content: str
    token_count: int
    from_n: int
    to_n: int
    """Numbers of the first and the last message that it summarises."""
    snapshot_type: str = "l2_summary"


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A memory that was made from an earlier one, with what belongs to it."""

    state: MemoryState
    snapshot: NewSnapshot | None = None
    dated: DatedSummary | None = None
    learned: LearnedFacts | None = None
    """What its messages state as facts."""
    charge: Charge | None = None
    told: LaterSpans | None = None
    """What the trace of a turn tells of making it."""


class Memories:
    """The tables of memory and of its snapshots."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._histories = HistoryCache()

    def load(self, lane: str, *, limit: int, claim: Claim | None = None) -> Remembered:
        """What a turn starts from. It reads what was said since this process read the session last.

        Args:
            limit: most messages of L1, the newest. A turn that the limit cuts is left out: L1 begins with a user's
                message.
            claim: the turn that starts from it. What is read is then the session as it was before this turn: a worker
                that slept while others ended the turn would otherwise find the answer in its own past.
        """
        known = self._histories.get(lane)  # before the snapshot, or it might be ahead of it
        with self._database.read() as tx:
            asked = statements.MEMORY.ask(tx, {"our_lane": lane})
            if claim is not None:
                check_fence(tx, claim)
            row = asked.answer()
            state = MemoryState() if row is None else rows.memory_state(row)
            if known and known[0].n < state.first_n:
                known = tuple(message for message in known if message.n >= state.first_n)
            history = _latest(tx, lane, known, first_n=state.first_n, limit=limit)
            promoted = messages_with_ids(tx, lane, state.promoted)
        if limit:
            self._histories.keep(lane, history)
        begin = next((at for at, message in enumerate(history) if message.chat.role == "user"), len(history))
        return Remembered(state, history[begin:], promoted)

    def is_there(self, lane: str) -> bool:
        """False if the session is deleted."""
        with self._database.read() as tx:
            return find_lane(tx, lane) is not None

    def due(self, *, due_before_ms: int, limit: int) -> tuple[str, ...]:
        """Lanes whose L1 has been due for compression since this moment or longer, the longest waiting first."""
        with self._database.read() as tx:
            found = _SINCE.all(tx, {"due_ms": due_before_ms, "most": limit})
            if len(found) < limit:
                found += _AHEAD.all(tx, {"due_ms": due_before_ms + AHEAD_MS, "most": limit - len(found)})
        return tuple(row["lane"] for row in found)

    def claim(self, lane: str, *, worker: str, alive: frozenset[str], now_ms: int) -> MemoryClaim | None:
        """Take the right to compress. It only saves work: ``apply`` decides whose summary counts.

        Args:
            alive: living workers. The claim of any other worker, or of this one itself, is taken over.

        Returns:
            None if it is not due, another living worker has the claim, or the session is deleted. A claim on a memory
            that is not due would outlive its worker's death, for nobody looks at it again.
        """
        with self._database.write(lock=Lock.lane(lane)) as tx:
            owner = find_lane(tx, lane)
            row = statements.MEMORY.first(tx, {"our_lane": lane})
            if owner is None or row is None or row["due_ms"] is None:
                return None
            if row["held_by"] != worker and row["held_by"] in alive:
                return None
            tx.execute(_HOLD, {"our_lane": lane, "holder": worker, "since_ms": now_ms})
            turn = last_ended(tx, lane, until_ms=row["due_ms"])
        return MemoryClaim(rows.session(owner), rows.memory_state(row), row["due_ms"], turn)

    def release(self, lane: str, worker: str, *, is_done: bool, seen_due_ms: int, again_ms: int | None = None) -> bool:
        """Give the right to compress back, if this worker still has it.

        Args:
            is_done: L1 is short enough again, so the memory is no longer due.
            seen_due_ms: since when it was due when it was claimed.
            again_ms: when it becomes due again, if that is known already; at most AHEAD_MS from now.

        Returns:
            True if it has become due again meanwhile. Then claim it again, for others found it claimed and went away.
        """
        with self._database.write(lock=Lock.lane(lane)) as tx:
            ours = {"our_lane": lane, "holder": worker, "is_done": is_done, "seen_due_ms": seen_due_ms}
            due_ms = tx.execute(_LET_GO, ours | {"again_ms": again_ms}).scalar()
        return due_ms is not None and due_ms not in (seen_due_ms, again_ms)

    def oldest(self, lane: str, state: MemoryState, *, limit: int) -> tuple[Message, ...]:
        """The oldest messages of L1, as whole turns; ``limit``: most messages, unless the first turn alone has more."""
        with self._database.read() as tx:
            wanted = {"our_lane": lane, "first_n": state.first_n, "most": limit + 1}
            listed = [rows.message(row) for row in statements.OLDEST.all(tx, wanted)]
        if len(listed) <= limit:
            return tuple(listed)
        whole = tuple(message for message in listed[:limit] if message.turn_id != listed[-1].turn_id)
        if whole or listed[0].turn_id != listed[limit].turn_id:
            return whole
        return self.oldest(lane, state, limit=2 * limit)

    def undated(self, lane: str, state: MemoryState) -> int:
        """How many messages have left L1 and were not taken into the tiers so far."""
        wanted = {"our_lane": lane, "after": state.dated_n, "first_n": state.first_n}
        with self._database.read() as tx:
            return int(tx.execute(_UNDATED, wanted).scalar_one())

    def apply(self, lane: str, before: MemoryState, new: NewMemory, *, now_ms: int) -> bool:
        """Replace a memory with the one that was made from it, and store what belongs to it: snapshot, summary, facts.

        Recalled messages stay as they are. Charge and spans are written in any case: the money is spent.

        Returns:
            False if the memory has changed since ``before``, or the session is deleted.
        """
        snapshot, charge = new.snapshot, new.charge
        change = {"our_lane": lane, "old_version": before.version, **rows.memory_columns(new.state)}
        with self._database.write(durable=True, lock=WHOLE if new.learned else Lock.lane(lane)) as tx:
            is_applied = tx.execute(_APPLY, change).rowcount == 1
            if is_applied and snapshot is not None:
                owner = of_lane(tx, lane)
                values = {name: getattr(snapshot, name) for name in NewSnapshot.__slots__}
                values |= {"lane": owner["lane"], "session_id": owner["id"], "created_ms": now_ms}
                tx.execute(_INSERT_SNAPSHOT, values)
            if is_applied and new.dated is not None:
                add_dated(tx, of_lane(tx, lane), new.dated)
            if is_applied and new.learned is not None:
                learn(tx, of_lane(tx, lane), new.learned, now_ms=now_ms)
            if charge is not None:
                ledger.charge(tx, lane, charge, now_ms=now_ms)
            if new.told is not None:
                add_spans(tx, new.told, now_ms=now_ms)
        return is_applied

    def promote(
        self,
        tenant: Tenant,
        session_id: str,
        message_ids: Sequence[str],
        *,
        budget_tokens: int,
        tokens: Callable[[Sequence[Message]], int],
    ) -> int:
        """Recall messages into the context, in addition to those already there; repeating the call changes nothing.

        Args:
            budget_tokens: for all recalled messages together.
            tokens: counts the tokens of messages; called outside the transaction.

        Returns:
            The tokens of all recalled messages.

        Raises:
            NotFound: the tenant has no such session.
            Invalid: the session has no such message, or together they would exceed the budget (slug
                ``recall-budget-exceeded``); nothing was changed.
        """
        return self.promote_in_lane(
            self._lane(tenant, session_id), message_ids, budget_tokens=budget_tokens, tokens=tokens
        )

    def promote_in_lane(
        self, lane: str, message_ids: Sequence[str], *, budget_tokens: int, tokens: Callable[[Sequence[Message]], int]
    ) -> int:
        """As ``promote``, for a tool that knows the session's internal key."""
        return recall(self._database, lane, message_ids, budget_tokens=budget_tokens, tokens=tokens)

    def clear_promoted(self, tenant: Tenant, session_id: str) -> int:
        """Take all recalled messages out of the context; return how many they were.

        Raises:
            NotFound: the tenant has no such session.
        """
        return self.clear_promoted_in_lane(self._lane(tenant, session_id))

    def clear_promoted_in_lane(self, lane: str) -> int:
        """As ``clear_promoted``, for a tool that knows the session's internal key."""
        with self._database.write(durable=True, lock=Lock.lane(lane)) as tx:
            return clear_recalled(tx, lane)

    def page_from(self, lane: str, *, offset: int, limit: int) -> tuple[tuple[Message, ...], int]:
        """Messages of a session, oldest first, and how many it has in all.

        Args:
            offset: messages to skip, counted from the oldest of the session.
        """
        with self._database.read() as tx:
            wanted = {"our_lane": lane, "most": limit, "skipped": offset}
            listed = tuple(rows.message(row) for row in tx.execute(_PAGE, wanted).mappings())
            return listed, tx.execute(_COUNT, {"our_lane": lane}).scalar_one()

    def snapshots(self, tenant: Tenant, session_id: str, *, limit: int, after: str | None) -> Page[Snapshot]:
        """List a session's snapshots, the newest first; ``after`` is the id of the last one seen.

        Raises:
            NotFound: the tenant has no such session.
            Invalid: ``after`` is not the id of a snapshot.
        """
        ends = (_id_of(memory_snapshots.c.from_n), _id_of(memory_snapshots.c.to_n))
        query = select(memory_snapshots, ends[0].label("from_message_id"), ends[1].label("to_message_id"))
        with self._database.read() as tx:
            lane = found(tx, tenant, session_id)["lane"]
            ours = query.where(memory_snapshots.c.lane == lane)
            query = newest_first(ours, memory_snapshots.c.id, checked_cursor(after, "snap_"))
            return paged(tx, query, rows.snapshot, limit=limit)

    def totals(self, *, now_ms: int) -> Json:
        """Counts over all sessions: memory changes, snapshots, memories that are due, and the age of the oldest."""
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

    def _lane(self, tenant: Tenant, session_id: str) -> str:
        with self._database.read() as tx:
            return str(found(tx, tenant, session_id)["lane"])


def _latest(tx: Connection, lane: str, known: tuple[Message, ...], *, first_n: int, limit: int) -> tuple[Message, ...]:
    """The newest messages from a number on, oldest first: those known, and those behind them."""
    wanted = {"our_lane": lane, "first_n": known[-1].n + 1 if known else first_n, "most": limit}
    new = [rows.message(row) for row in reversed(statements.LATEST.all(tx, wanted))]
    # As many new ones as were asked for may be fewer than there are: then there is a gap before them.
    whole = (*known, *new) if len(new) < limit else tuple(new)
    return whole[max(0, len(whole) - limit) :]


def _id_of(n: ColumnElement[int]) -> ScalarSelect[str]:
    """The id of the message with a number, in the snapshot's session."""
    here = (messages.c.n == n, messages.c.lane == memory_snapshots.c.lane)
    return select(messages.c.id).where(*here).scalar_subquery()


class HistoryCache:
    """L1 of the sessions that this process has read lately, so that a turn reads only what was said since.

    Messages are only ever appended, and leave L1 from its front (``first_n``): what was read once stays true, and the
    next turn needs those behind the last one known. A deleted session's key never comes again. Any thread may use it.
    """

    def __init__(self, most_chars: int = MOST_CHARS) -> None:
        self._most_chars = most_chars
        self._chars = 0
        self._known: OrderedDict[str, tuple[tuple[Message, ...], int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, lane: str) -> tuple[Message, ...]:
        """What is known of a lane: messages without a gap, oldest first; perhaps some that have left L1 since."""
        with self._lock:
            known = self._known.get(lane)
            if known is None:
                return ()
            self._known.move_to_end(lane)
            return known[0]

    def keep(self, lane: str, history: tuple[Message, ...]) -> None:
        """Remember what was read just now; the lanes that were read longest ago make room for it."""
        with self._lock:
            before, chars = self._known.pop(lane, ((), 0))
            self._chars -= chars
            if not before or not history or before[0] is not history[0]:
                before, chars = (), 0  # else it has grown at its end
            chars += sum(map(_chars_of, history[len(before) :]))
            self._known[lane] = history, chars
            self._chars += chars
            while self._chars > self._most_chars:
                _, (_, gone) = self._known.popitem(last=False)
                self._chars -= gone


def _chars_of(message: Message) -> int:
    chat = message.chat
    return _BESIDE_CHARS + len(chat.text) + len(chat.context) + sum(len(each.content) for each in chat.outcomes)
