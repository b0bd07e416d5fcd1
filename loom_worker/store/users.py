"""All of one user is deleted: keys first, then sessions a few at a time; what is broken off, anybody goes on with."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, literal, select, union_all, update

from loom_worker.core.errors import NotFound
from loom_worker.core.values.audit import TURN_ENDED
from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import Actor, WorkspaceUser
from loom_worker.store.audit import note_act
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.fact_changes import remove_of_user
from loom_worker.store.files import abandon
from loom_worker.store.removal import DELETED_REASON, Deleted, remove
from loom_worker.store.schema import sessions, turns
from loom_worker.store.tables import (
    api_keys,
    audit,
    audit_inbox,
    pairings,
    session_tokens,
    user_deletions,
    workflow_runs,
)
from loom_worker.store.tenants import of_user

SESSIONS = 20
"""Sessions that are deleted in one transaction."""
RUNS = 20
"""Runs that are removed in one transaction: one of many stages has some megabytes."""
_COUNTED = ("sessions", "turns", "keys")


@dataclass(frozen=True, slots=True)
class UserDeletion:
    """How far the deletion of a user has come."""

    user: str
    sessions: int
    turns: int
    keys: int

    def as_json(self) -> Json:
        counts = {name: getattr(self, name) for name in _COUNTED}
        return {"user": self.user, "object": "user.deleted", **counts}


class Users:
    """What belongs to a user, over all tables."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, who: WorkspaceUser, by: Actor, *, now_ms: int) -> UserDeletion:
        """Revoke the user's keys, forget names, facts and who they are in channels, and note that the rest is to go.

        Raises:
            NotFound: the user has no session, no key that is valid or has a name, no pairing, no fact, and is not
                being deleted.
        """
        is_kept = and_(*of_user(api_keys, who), api_keys.c.revoked_ms.is_(None))
        with self._database.write(durable=True, lock=WHOLE) as tx:
            known = tx.execute(select(user_deletions).where(*of_user(user_deletions, who))).first()
            keys = tx.execute(select(api_keys.c.id).where(is_kept).order_by(api_keys.c.id)).scalars().all()
            has_session, is_paired = _has(tx, sessions, who), _has(tx, pairings, who)
            has_name = _has(tx, api_keys, who, api_keys.c.name != "")
            has_facts = remove_of_user(tx, who)
            if not (known or keys or has_session or has_name or is_paired or has_facts or _has(tx, workflow_runs, who)):
                raise NotFound(f"There is nothing of a user {who.user!r}.")
            tx.execute(update(api_keys).where(is_kept).values(revoked_ms=now_ms))
            lanes = select(sessions.c.lane).where(*of_user(sessions, who))
            tx.execute(delete(session_tokens).where(session_tokens.c.lane.in_(lanes)))
            tx.execute(update(api_keys).where(*of_user(api_keys, who)).values(name=""))
            tx.execute(delete(pairings).where(*of_user(pairings, who)))
            for key_id in keys:
                _note(tx, "key.revoked", who, by.key_id, at_ms=now_ms, subject=key_id)
            row = {"workspace": who.workspace, "user": who.user, "key_id": by.key_id}
            noted = upsert(user_deletions).values(**row, keys=len(keys), asked_ms=now_ms)
            more = {"keys": user_deletions.c["keys"] + len(keys)}
            tx.execute(noted.on_conflict_do_update(index_elements=["workspace", "user"], set_=more))
            return _progress(tx, who)

    def delete_some(self, who: WorkspaceUser, *, now_ms: int) -> tuple[Deleted, ...]:
        """Delete the next sessions, with the turns that run in them; empty: none is left."""
        with self._database.write(durable=True, lock=WHOLE) as tx:
            rows = tx.execute(select(sessions).where(*of_user(sessions, who)).limit(SESSIONS)).mappings().all()
            key_id = tx.execute(select(user_deletions.c.key_id).where(*of_user(user_deletions, who))).scalar()
            if not rows or key_id is None:
                return ()
            _remove_runs(tx, who)  # a run has a session at least, so they are gone before these
            lanes = [row["lane"] for row in rows]
            count = tx.execute(select(func.count()).where(turns.c.lane.in_(lanes))).scalar_one()
            gone = tuple(remove(tx, row, Actor(key_id), now_ms=now_ms) for row in rows)
            counts = {"sessions": user_deletions.c.sessions + len(rows), "turns": user_deletions.c.turns + count}
            tx.execute(update(user_deletions).where(*of_user(user_deletions, who)).values(**counts))
            return gone

    def stopped_turns(self, who: WorkspaceUser) -> tuple[str, ...]:
        """Ids of the turns that were stopped since the deletion was asked for, as the audit has them."""
        asked_ms = select(user_deletions.c.asked_ms).where(*of_user(user_deletions, who)).scalar_subquery()
        stopped = [
            select(rows.c.turn_id)
            .where(*of_user(rows, who), rows.c.at_ms >= asked_ms)
            .where(rows.c.action == TURN_ENDED, rows.c.reason == DELETED_REASON)
            for rows in (audit, audit_inbox)
        ]
        with self._database.read() as tx:
            return tuple(tx.execute(union_all(*stopped)).scalars())

    def progress(self, who: WorkspaceUser) -> UserDeletion | None:
        """How far the deletion has come; None if it has ended."""
        with self._database.read() as tx:
            return _progress(tx, who) if _has(tx, user_deletions, who) else None

    def finish(self, who: WorkspaceUser, *, now_ms: int) -> None:
        """Note that the user is deleted, unless a session was made meanwhile: the next sweep goes on then."""
        with self._database.write(durable=True, lock=WHOLE) as tx:
            row = tx.execute(select(user_deletions).where(*of_user(user_deletions, who))).mappings().first()
            if row is None or _has(tx, sessions, who):
                return
            while _remove_runs(tx, who):
                pass  # those whose sessions went before them
            remove_of_user(tx, who)  # what its sessions said while they were deleted
            abandon(tx, who)
            counts = [{"kind": "count", "name": name, "outcome": row[name]} for name in _COUNTED]
            tx.execute(delete(user_deletions).where(*of_user(user_deletions, who)))
            _note(tx, "user.deleted", who, row["key_id"], at_ms=now_ms, subject=who.user, decisions=counts)

    def unfinished(self, *, asked_before_ms: int, limit: int) -> tuple[WorkspaceUser, ...]:
        """Users whose deletion has not ended, asked for before a moment."""
        query = select(user_deletions.c.workspace, user_deletions.c.user)
        query = query.where(user_deletions.c.asked_ms < asked_before_ms).limit(limit)
        with self._database.read() as tx:
            return tuple(WorkspaceUser(row.workspace, row.user) for row in tx.execute(query))


def _progress(tx: Connection, who: WorkspaceUser) -> UserDeletion:
    row = tx.execute(select(user_deletions).where(*of_user(user_deletions, who))).mappings().one()
    return UserDeletion(who.user, *(row[name] for name in _COUNTED))


def _note(tx: Connection, action: str, who: WorkspaceUser, key_id: str, **about: Any) -> None:
    note_act(tx, action, Actor(key_id, who.user), workspace=who.workspace, **about)


def _has(tx: Connection, table: Table, who: WorkspaceUser, *more: ColumnElement[bool]) -> bool:
    query = select(literal(1)).select_from(table).where(*of_user(table, who), *more)
    return tx.execute(query.limit(1)).first() is not None


def _remove_runs(tx: Connection, who: WorkspaceUser) -> int:
    """Remove the next runs of a user; how many. Their sessions go by themselves."""
    some = select(workflow_runs.c.id).where(*of_user(workflow_runs, who)).limit(RUNS)
    return tx.execute(delete(workflow_runs).where(workflow_runs.c.id.in_(some))).rowcount
