"""What is removed with age: journals and deliveries of ended turns, old conversations, and the disk space they took.

It is called with every sweep, looks at a few rows and removes a few, each batch in a transaction of some milliseconds.
Each kind is walked through by its primary key, and then left alone for a while. Ids of turns and deliveries sort by
time. A conversation is a session that nobody used for long or, in a session that goes on, the turns that have left the
model's context.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, Text, bindparam, cast, delete, func, select

from loom_worker.core.settings_tree import RetentionSettings
from loom_worker.core.values.ids import now_ms as moment_ms
from loom_worker.core.values.ids import sortable_id
from loom_worker.core.values.tenants import RETENTION
from loom_worker.core.values.workspaces import Rules
from loom_worker.store.audit import AuditRows
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.dated_summaries import remove_dated
from loom_worker.store.engines.engine import WHOLE, Lock
from loom_worker.store.fact_changes import remove_of_messages
from loom_worker.store.purge import BATCH_CHARACTERS, REST_S
from loom_worker.store.removal import remove
from loom_worker.store.schema import DELETED, messages, outbox, sessions, steps, turns, unfinished, verdicts
from loom_worker.store.tables import memory, memory_snapshots, spans, workflow_runs, workspaces

DAY_MS = 24 * 3600 * 1000
BATCHES = 10
"""Batches of each kind in one sweep."""
ROWS = 50
"""Turns or deliveries that a batch looks at."""
BATCH_BYTES = 100_000
"""Most bytes that a batch removes, unless one row alone has more: each page of them is overwritten."""
SPAN_BYTES = 64 * 1024 * 1024
"""Most that spans take which are stored as such; a turn with a webhook and a compression has some 2 kB of them."""
SESSIONS = 20
"""Sessions that a batch looks at."""
RUNS = 20
"""Runs that a batch looks at: one of many stages has some megabytes."""
FOR_EVER_DAYS = 1_000_000
PAUSE_MS = 10 * 60 * 1000
"""Pause after a walk through a whole table."""
MESSAGES = 100
"""Messages of one session that are looked at together; more if its oldest turn has more."""
ROUNDS = 5
"""Batches of one session before the next session has its turn."""

_OLDEST = (
    select(
        messages.c.n,
        messages.c.turn_id,
        messages.c.created_ms,
        (func.length(messages.c.content) + func.coalesce(func.length(messages.c.grams), 0)).label("characters"),
    )
    .where(messages.c.lane == bindparam("our_lane"))
    .order_by(messages.c.n)
)
_FIRST_N = select(memory.c.first_n).where(memory.c.lane == bindparam("our_lane"))
_has_open = select(turns.c.id).where(turns.c.lane == sessions.c.lane, unfinished()).exists()
_has_pending = (
    select(outbox.c.id)
    .join(turns, turns.c.id == outbox.c.turn_id)
    .where(turns.c.lane == sessions.c.lane, outbox.c.status == "pending")
    .exists()
)

ACCOUNT_DAYS = 40
"""Longer than any period of a budget."""


class Retention:
    """Removes what is older than the settings say; one for each process that sweeps."""

    def __init__(self, database: Database, settings: RetentionSettings) -> None:
        """Keep for ever whatever has 0 days."""
        self._database = database
        kinds: tuple[tuple[_Expiry, int], ...] = (
            (_Journals(database), settings.journal_days),
            (_Deliveries(database), settings.journal_days),
            (_Accounts(database), ACCOUNT_DAYS),
            (_Conversations(database), settings.conversation_days),
            (_Audit(database), settings.audit_days),
        )
        self._walks = [_Walk(expiry, days * DAY_MS) for expiry, days in kinds if days]
        spans_days = settings.journal_days or FOR_EVER_DAYS  # they are bounded by their size, too
        self._walks.append(_Walk(_Spans(database), spans_days * DAY_MS))
        self._walks.append(_Walk(IdleSessions(database), 0))  # each workspace says how many days
        self._walks.append(_Walk(OldRuns(database, settings.conversation_days), 0))

    def once(self, now_ms: int) -> None:
        """Remove some of what is too old, and give some free pages back to the disk."""
        for walk in self._walks:
            if now_ms >= walk.rests_until_ms:
                walk.go(now_ms)
        self._database.engine.give_back()


class _Expiry(Protocol):
    """Removes old rows of one kind."""

    def remove_some(self, after: str, before_ms: int) -> str:
        """Remove some of what is older than a moment; look at the next few rows only.

        Args:
            after: the key of the last row that was looked at; empty: start.

        Returns:
            The key to go on after; empty at the end.
        """


@dataclass(slots=True)
class _Walk:
    """How far the rows of one kind have been walked through."""

    expiry: _Expiry
    keep_ms: int
    after: str = ""
    rests_until_ms: int = 0

    def go(self, now_ms: int) -> None:
        for _ in range(BATCHES):
            self.after = self.expiry.remove_some(self.after, now_ms - self.keep_ms)
            if not self.after:
                self.rests_until_ms = now_ms + PAUSE_MS
                return
            time.sleep(REST_S)


class _Journals:
    """Steps and verdicts of ended turns; the turns stay. One that ended later, or has not ended, keeps all of them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def remove_some(self, after: str, before_ms: int) -> str:
        """As ``_Expiry``; the key is a turn's id."""
        older = (steps.c.turn_id > after, steps.c.turn_id < sortable_id("turn_", now_ms=before_ms, chance=0))
        size = func.sum(func.length(cast(steps.c.payload, Text)))
        some = select(steps.c.turn_id, size).where(*older).group_by(steps.c.turn_id).order_by(steps.c.turn_id)
        with self._database.read() as tx:
            found = tx.execute(some.limit(ROWS)).all()
        for ids in _fitting((row[0], row[1]) for row in found):
            old = select(turns.c.id).where(turns.c.id.in_(ids), turns.c.completed_ms < before_ms, ~unfinished())
            with self._database.write(lock=Lock.named("retention")) as tx:
                tx.execute(delete(steps).where(steps.c.turn_id.in_(old)))
                tx.execute(delete(verdicts).where(verdicts.c.turn_id.in_(old)))
        return found[-1][0] if len(found) == ROWS else ""


class _Deliveries:
    """Deliveries that were delivered or given up; a pending one stays, whatever its age."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def remove_some(self, after: str, before_ms: int) -> str:
        """As ``_Expiry``; the key is a delivery's id."""
        older = (outbox.c.id > after, outbox.c.id < sortable_id("whd_", now_ms=before_ms, chance=0))
        some = select(outbox.c.id, func.length(outbox.c.body)).where(*older).order_by(outbox.c.id)
        is_done = (outbox.c.status != "pending", func.coalesce(outbox.c.delivered_ms, outbox.c.created_ms) < before_ms)
        with self._database.read() as tx:
            found = tx.execute(some.limit(ROWS)).all()
        for ids in _fitting((row[0], row[1]) for row in found):
            with self._database.write(lock=Lock.named("retention")) as tx:
                tx.execute(delete(outbox).where(outbox.c.id.in_(ids), *is_done))
        return found[-1][0] if len(found) == ROWS else ""


class _Spans:
    """Spans that are stored as such, with age; and the oldest of more than SPAN_BYTES."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def remove_some(self, after: str, before_ms: int) -> str:
        """As ``_Expiry``; the key says only that there may be more."""
        size = func.sum(func.length(cast(spans.c.body, Text)))
        oldest = select(spans.c.n, spans.c.added_ms).order_by(spans.c.n).limit(ROWS)
        with self._database.read() as tx:
            is_full = (tx.execute(select(size)).scalar() or 0) > SPAN_BYTES
            old = [row.n for row in tx.execute(oldest) if is_full or row.added_ms < before_ms]
        if old:
            with self._database.write(lock=Lock.named("retention")) as tx:
                tx.execute(delete(spans).where(spans.c.n.in_(old)))
        return "more" if len(old) == ROWS else ""


class _Accounts:
    """What was counted for budgets of a day or a month, and for turns that are long over."""

    def __init__(self, database: Database) -> None:
        self._budgets = Budgets(database)

    def remove_some(self, after: str, before_ms: int) -> str:
        self._budgets.purge(before_ms=before_ms)
        return ""


class _Audit:
    """The oldest rows of the audit; what is left of the chain stays verifiable."""

    def __init__(self, database: Database) -> None:
        self._audit = AuditRows(database)

    def remove_some(self, after: str, before_ms: int) -> str:
        """As ``_Expiry``; the key says only that there may be more."""
        return "more" if self._audit.prune(before_ms=before_ms) else ""


def _fitting(sized: Iterable[tuple[str, int]]) -> Iterator[list[str]]:
    """The ids in groups, each of which has at most BATCH_BYTES or one id."""
    group: list[str] = []
    size = 0
    for one, length in sized:
        if group and size + length > BATCH_BYTES:
            yield group
            group, size = [], 0
        group.append(one)
        size += length
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class _Past:
    """Whole turns at the beginning of a session."""

    last_n: int
    """Number of their last message."""
    last_turn: str


class _Conversations:
    """Old sessions, and old turns of sessions that go on.

    A session whose last turn was accepted and ended before the moment is deleted as by its user. In one that goes on,
    turns that ended before go once none of their messages is in L1. A turn that has not ended, or has a webhook to
    send, keeps its session from being deleted, and keeps all that came after it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def remove_some(self, after: str, before_ms: int) -> str:
        """As ``_Expiry``; the key is a session's lane."""
        is_old = sessions.c.created_ms < before_ms
        some = select(sessions.c.lane, sessions.c.updated_ms, sessions.c.workspace, is_old.label("is_old"))
        with self._database.read() as tx:
            found = tx.execute(some.where(sessions.c.lane > after).order_by(sessions.c.lane).limit(SESSIONS)).all()
        for row in found:
            if row.is_old and row.workspace != DELETED:
                if row.updated_ms < before_ms:
                    _delete_idle(self._database, row.lane, before_ms)
                else:
                    self._shorten(row.lane, before_ms)
        return found[-1].lane if len(found) == SESSIONS else ""

    def _shorten(self, lane: str, before_ms: int) -> None:
        for _ in range(ROUNDS):
            with self._database.read() as tx:
                past = _past(tx, lane, before_ms)
            if past is None:
                return
            with self._database.write(lock=WHOLE) as tx:  # facts are said by many sessions
                tx.execute(delete(messages).where(messages.c.lane == lane, messages.c.n <= past.last_n))
                up_to = select(turns.c.seq).where(turns.c.id == past.last_turn).scalar_subquery()
                is_done = (turns.c.completed_ms < before_ms, ~unfinished())
                tx.execute(delete(turns).where(turns.c.lane == lane, turns.c.seq <= up_to, *is_done))
                snapshots = memory_snapshots
                tx.execute(delete(snapshots).where(snapshots.c.lane == lane, snapshots.c.to_n <= past.last_n))
                remove_dated(tx, lane, past.last_n)
                remove_of_messages(tx, lane, past.last_n)


def _past(tx: Connection, lane: str, before_ms: int, *, most: int = MESSAGES) -> _Past | None:
    """The old turns at the beginning of a session that are removed together; None if there are none."""
    first_n = tx.execute(_FIRST_N, {"our_lane": lane}).scalar() or 0
    rows: Sequence[Any] = tx.execute(_OLDEST.limit(most + 1), {"our_lane": lane}).all()
    if not rows:  # a session that was only made, or whose messages are gone
        return None
    kept = _kept_turns(tx, [row.turn_id for row in rows], before_ms)
    past: _Past | None = None
    characters = 0
    for row, following in zip(rows[:most], [*rows[1:], None][:most], strict=True):
        characters += row.characters
        if row.n >= first_n or row.created_ms >= before_ms or row.turn_id in kept:
            return past
        if past is not None and characters > BATCH_CHARACTERS:
            return past
        if following is None or following.turn_id != row.turn_id:
            past = _Past(row.n, row.turn_id)
    is_cut = past is None and len(rows) > most
    return _past(tx, lane, before_ms, most=2 * most) if is_cut else past


def _kept_turns(tx: Connection, turn_ids: list[str], before_ms: int) -> frozenset[str]:
    """The turns that have not ended before the moment, or whose webhook is still to be sent."""
    is_young: ColumnElement[bool] = func.coalesce(turns.c.completed_ms, before_ms) >= before_ms
    has_pending = select(outbox.c.id).where(outbox.c.turn_id == turns.c.id, outbox.c.status == "pending").exists()
    found = select(turns.c.id).where(turns.c.id.in_(set(turn_ids)), is_young | has_pending)
    return frozenset(tx.execute(found).scalars())


class IdleSessions:
    """Sessions of the workspaces whose rules say how long an unused one is kept."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def remove_some(self, after: str, before_ms: int) -> str:
        """As ``_Expiry``; the key is a session's lane, the moment is now."""
        with self._database.read() as tx:
            kept_ms = {name: days * DAY_MS for name, days in _retention_days(tx).items()}
        if not kept_ms:
            return ""
        some = select(sessions.c.lane, sessions.c.workspace, sessions.c.updated_ms)
        some = some.where(sessions.c.lane > after, sessions.c.workspace.in_(kept_ms))
        with self._database.read() as tx:
            found = tx.execute(some.order_by(sessions.c.lane).limit(SESSIONS)).all()
        for row in found:
            if row.updated_ms < before_ms - kept_ms[row.workspace]:
                _delete_idle(self._database, row.lane, before_ms - kept_ms[row.workspace])
        return found[-1].lane if len(found) == SESSIONS else ""


def _delete_idle(database: Database, lane: str, before_ms: int) -> None:
    """Delete a session that was last used before a moment, unless a turn is open or a webhook to be sent."""
    is_idle = (sessions.c.lane == lane, sessions.c.updated_ms < before_ms, ~_has_open)
    with database.read() as tx:  # the webhooks of a long session take a while to look through
        if tx.execute(select(sessions.c.lane).where(*is_idle, ~_has_pending)).first() is None:
            return
    with database.write(lock=WHOLE) as tx:
        row = tx.execute(select(sessions).where(*is_idle)).mappings().first()
        if row is not None:
            remove(tx, row, RETENTION, now_ms=moment_ms())


class OldRuns:
    """Runs that ended longer ago than conversations are kept: the setting bounds all, a workspace's rule its own."""

    def __init__(self, database: Database, conversation_days: int) -> None:
        """Args: conversation_days: 0: only rules of workspaces bound them."""
        self._database = database
        self._days = conversation_days or None

    def remove_some(self, after: str, before_ms: int) -> str:
        """As ``_Expiry``; the key is a run's id, the moment is now."""
        with self._database.read() as tx:
            days = _retention_days(tx)
            if not (self._days or days):
                return ""
            some = select(workflow_runs.c.id, workflow_runs.c.workspace, workflow_runs.c.completed_ms)
            found = tx.execute(some.where(workflow_runs.c.id > after).order_by(workflow_runs.c.id).limit(RUNS)).all()
        for row in found:
            bounds = [each for each in (self._days, days.get(row.workspace)) if each is not None]
            if bounds and row.completed_ms is not None and row.completed_ms < before_ms - min(bounds) * DAY_MS:
                with self._database.write(lock=Lock.named("retention")) as tx:
                    tx.execute(delete(workflow_runs).where(workflow_runs.c.id == row.id))
        return found[-1].id if len(found) == RUNS else ""


def _retention_days(tx: Connection) -> dict[str, int]:
    """How many days the rules of workspaces keep what nobody uses, of those whose rules say so."""
    stored = tx.execute(select(workspaces.c.name, workspaces.c.rules)).all()
    days = {row.name: Rules.of(row.rules).retention_days for row in stored}
    return {name: kept for name, kept in days.items() if kept is not None}
