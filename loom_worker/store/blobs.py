"""Large results: whose they are, how long they are kept, and how much there is; their bytes are elsewhere.

A row goes before its bytes do, so that nobody finds a row without bytes in what is removed on purpose.
"""

from collections.abc import Collection
from dataclasses import asdict

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from loom_worker.core.values.media import file_id_of
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.tools import DataReference
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.engines.engine import Lock
from loom_worker.store.schema import sessions, turns, unfinished
from loom_worker.store.tables import agent_message_refs, agent_messages, blob_grants, blobs, files, workflow_runs
from loom_worker.store.tenants import of_session, ours

TOUCH_MS = 60_000
"""A use is written down no more often than this."""
IDS = 500
"""Ids of one query: SQLite takes so many values, and more."""

_FIELDS = tuple(name for name in DataReference.__slots__ if name != "location")
_HELD = exists().where(sessions.c.lane == blobs.c.lane, sessions.c.workspace == blobs.c.workspace)
"""False once the session that made the result is deleted."""


def _is_needed() -> ColumnElement[bool]:
    """True while somebody may still read it.

    That is a turn of its session, or of one it was passed on to, a message that passes it on, its run, or the turn that
    waits for the one that made it.
    """
    own = exists().where(turns.c.lane == blobs.c.lane, unfinished())
    passed_on = exists().where(blob_grants.c.ref == blobs.c.id, turns.c.lane == blob_grants.c.lane, unfinished())
    # What a message passes on is kept until somebody has dealt with it; a dead one may be queued again.
    in_message = and_(agent_message_refs.c.ref == blobs.c.id, agent_messages.c.id == agent_message_refs.c.message_id)
    message = exists().where(in_message, agent_messages.c.status != "done")
    # A stage's output is for later stages of its run, an answer for the turn that waits for it.
    maker, reader = turns.alias("maker"), turns.alias("reader")
    run = exists().where(
        maker.c.id == blobs.c.turn_id, workflow_runs.c.id == maker.c.run_id, workflow_runs.c.completed_ms.is_(None)
    )
    parent = exists().where(
        maker.c.id == blobs.c.turn_id, reader.c.id == maker.c.parent_turn_id, reader.c.completed_ms.is_(None)
    )
    return or_(own, passed_on, message, run, parent)


def readable(tx: Connection, refs: Collection[str], lane: str) -> frozenset[str]:
    """Those of some references that a session made or was granted."""
    granted = exists().where(blob_grants.c.ref == blobs.c.id, blob_grants.c.lane == lane)
    found = select(blobs.c.id).where(blobs.c.id.in_(refs), or_(blobs.c.lane == lane, granted))
    return frozenset(tx.execute(found).scalars()) if refs else frozenset()


def grant(tx: Connection, refs: Collection[str], lane: str) -> None:
    """Let a session read references that are still there."""
    there = select(blobs.c.id).where(blobs.c.id.in_(refs), blobs.c.lane != lane)
    new = [{"ref": ref, "lane": lane} for ref in tx.execute(there).scalars()] if refs else []
    if new:
        tx.execute(upsert(blob_grants).on_conflict_do_nothing(), new)


class BlobRows:
    """The tables of references and of those they were passed on to."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def insert(self, reference: DataReference, *, lane: str, most_bytes: int) -> bool:
        """Add a reference if all of them keep within ``most_bytes`` with it; False if not."""
        row = {name: value for name, value in asdict(reference).items() if name in _FIELDS}
        with self._database.write(lock=Lock.named("blobs")) as tx:
            if total_bytes(tx) + reference.stored_bytes > most_bytes:
                return False
            tx.execute(insert(blobs), {**row, "lane": lane, "used_ms": reference.stored_at_ms})
        return True

    def of_lane(self, ref: str, lane: str) -> DataReference | None:
        """The reference, if this session made it or was granted it."""
        granted = exists().where(blob_grants.c.ref == blobs.c.id, blob_grants.c.lane == lane)
        return self._one(ref, or_(blobs.c.lane == lane, granted))

    def of_tenant(self, ref: str, tenant: Tenant) -> DataReference | None:
        """The reference, if a session of the tenant made it."""
        return self._one(ref, of_session(blobs.c.lane, ours(tenant)))

    def pass_on(self, refs: Collection[str], *, from_turn: str, to_lane: str) -> None:
        """Let a session read those of some references that the session of a turn can read."""
        with self._database.write(lock=Lock.named("blobs")) as tx:
            lane = tx.execute(select(turns.c.lane).where(turns.c.id == from_turn)).scalar()
            if lane is not None:
                grant(tx, readable(tx, refs, lane), to_lane)

    def touch(self, ref: str, *, now_ms: int) -> None:
        """Keep a reference for its whole time from now on; written once a minute at most."""
        is_due = and_(blobs.c.id == ref, blobs.c.used_ms <= now_ms - TOUCH_MS)
        with self._database.read() as tx:
            if tx.execute(select(blobs.c.id).where(is_due)).first() is None:
                return
        with self._database.write(lock=Lock.named("blobs")) as tx:
            tx.execute(update(blobs).where(is_due).values(used_ms=now_ms))

    def total_bytes(self) -> int:
        """Stored bytes of all references, and of files."""
        with self._database.read() as tx:
            return total_bytes(tx)

    def take_expired(self, *, unused_since_ms: int, limit: int) -> tuple[str, ...]:
        """Remove references that nobody used since a moment and no unfinished turn needs; return which."""
        is_old = and_(blobs.c.used_ms <= unused_since_ms, ~_is_needed())
        some = select(blobs.c.id).where(is_old).order_by(blobs.c.used_ms).limit(limit)
        with self._database.read() as tx:
            if tx.execute(some.limit(1)).first() is None:  # asked every second, and seldom anything to write
                return ()
        with self._database.write(lock=Lock.named("blobs")) as tx:
            return _remove(tx, list(tx.execute(some).scalars()))

    def make_room(self, size_bytes: int, *, most_bytes: int, limit: int = IDS) -> tuple[str, ...]:
        """Remove what was used least lately, and is not needed, until so many bytes more keep within the bound.

        Returns:
            Which were removed; those may be too few, for ``limit`` of them go at a time, and some are needed.
        """
        some = select(blobs.c.id, blobs.c.stored_bytes).where(~_is_needed()).order_by(blobs.c.used_ms).limit(limit)
        with self._database.write(lock=Lock.named("blobs")) as tx:
            over = total_bytes(tx) + size_bytes - most_bytes
            gone: list[str] = []
            for ref, stored_bytes in tx.execute(some):
                if over <= 0:
                    break
                gone.append(ref)
                over -= stored_bytes
            return _remove(tx, gone)

    def take_abandoned(self, *, after: str, limit: int) -> tuple[tuple[str, ...], str]:
        """Remove what deleted sessions left, looking at the next few lanes.

        Args:
            after: the last lane that was looked at; empty: begin.
            limit: of lanes.

        Returns:
            The removed references, and the lane to go on after; empty at the end.
        """
        # By the index of lanes alone, a piece at a time: there may be a great many rows, and it is asked every second.
        some = select(blobs.c.lane).distinct().where(blobs.c.lane > after).order_by(blobs.c.lane).limit(limit)
        with self._database.read() as tx:
            lanes = list(tx.execute(some).scalars())
            gone = list(tx.execute(select(blobs.c.id).where(blobs.c.lane.in_(lanes), ~_HELD).limit(IDS)).scalars())
        following = lanes[-1] if len(lanes) == limit else ""
        if not gone:
            return (), following
        with self._database.write(lock=Lock.named("blobs")) as tx:
            return _remove(tx, gone), following

    def known(self, refs: Collection[str]) -> frozenset[str]:
        """Those of these references that have a row, of a result or of a file."""
        asked, found = list(refs), set[str]()
        with self._database.read() as tx:
            for start in range(0, len(asked), IDS):
                some = select(blobs.c.id).where(blobs.c.id.in_(asked[start : start + IDS]))
                found.update(tx.execute(some).scalars())
                of_files = {file_id_of(ref): ref for ref in asked[start : start + IDS]}
                kept = tx.execute(select(files.c.id).where(files.c.id.in_(of_files))).scalars()
                found.update(of_files[file_id] for file_id in kept)
        return frozenset(found)

    def _one(self, ref: str, may_read: ColumnElement[bool]) -> DataReference | None:
        with self._database.read() as tx:
            row = tx.execute(select(blobs).where(blobs.c.id == ref, may_read, _HELD)).mappings().first()
        return None if row is None else DataReference(**{name: row[name] for name in _FIELDS})


def total_bytes(tx: Connection) -> int:
    """Stored bytes of all results and files."""
    kept = (select(func.coalesce(func.sum(size), 0)) for size in (blobs.c.stored_bytes, files.c.size_bytes))
    return sum(tx.execute(each).scalar_one() for each in kept)


def _remove(tx: Connection, refs: Collection[str]) -> tuple[str, ...]:
    if refs:
        tx.execute(delete(blobs).where(blobs.c.id.in_(refs)))
    return tuple(refs)
