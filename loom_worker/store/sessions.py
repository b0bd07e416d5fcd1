"""Sessions: created, found, listed, changed and deleted, always for a tenant: a workspace, or one user of it."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, and_, bindparam, insert, or_, select, update

from loom_worker.core.errors import Conflict, NotFound
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.ids import now_ms as moment_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import Page, no_cursor
from loom_worker.core.values.sessions import NewSession, Session, SessionPatch
from loom_worker.core.values.tenants import LOCAL, Actor, Tenant, session_of, user_of, workspace_of
from loom_worker.core.values.tiers import Scope
from loom_worker.core.values.workspaces import Rules
from loom_worker.store import purge, rows
from loom_worker.store import turn_statements as statements
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE, Lock
from loom_worker.store.removal import Deleted, remove, with_children
from loom_worker.store.schema import DELETED, sessions, turns
from loom_worker.store.tables import memory
from loom_worker.store.tenants import ours, paged, parameters

_OF_LANE = select(sessions).where(sessions.c.lane == bindparam("our_lane"), sessions.c.workspace != DELETED)
_DELETED_TURNS = (
    select(turns.c.id)
    .where(turns.c.lane.in_(select(sessions.c.lane).where(sessions.c.workspace == DELETED)))
    .limit(bindparam("most", type_=Integer))
)


@dataclass(frozen=True, slots=True)
class Asked:
    """Who answers in a session, the version of that agent that it keeps, the workspace's rules, its own budget."""

    agent: str
    version: str | None
    rules: Rules
    budget: Json | None


class Sessions:
    """The table of sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, tenant: Tenant, new: NewSession, *, now_ms: int) -> Session:
        """Create a session; it gets an id if the client gives none.

        Raises:
            Conflict: the workspace has a session of that id, perhaps one of another user.
        """
        with self._database.write(durable=True, lock=Lock.session(workspace_of(tenant), new.id or "")) as tx:
            if new.id is not None and find(tx, workspace_of(tenant), new.id) is not None:
                raise Conflict(f"Session {new.id!r} exists already.", "session-exists")
            return rows.session(add(tx, tenant, new, now_ms=now_ms))

    def get(self, tenant: Tenant, session_id: str) -> Session:
        """Return a session with its queue."""
        with self._database.read() as tx:
            return _with_queue(tx, found(tx, tenant, session_id))

    def known(self, tenant: Tenant, session_id: str, named: str) -> Session | None:
        """The session as a turn that names this agent finds it, without its queue; None: it is new."""
        with self._database.read() as tx:
            row = find(tx, tenant, session_id)
        return None if row is None else rows.session({**row, "agent": row["agent"] or named})

    def asked(self, tenant: Tenant, session_id: str, named: str) -> Asked:
        """Who answers in a session, and on what terms.

        A session that keeps no version has that with the label ``production``, if there is one; None: the newest.

        Args:
            named: the agent of a session that has none yet, or that does not exist.
        """
        with self._database.read() as tx:
            row = statements.ASKED.one(tx, {**parameters(tenant), "our_id": session_id, "named": named})
        return Asked(row["agent"] or named, row["version"], Rules.of(row["rules"]), row["budget"])

    def page(self, tenant: Tenant, *, limit: int, after: str | None) -> Page[Session]:
        """List sessions, the newest first; ``after`` is a page's ``next``, or the id of the last session seen.

        Those of workflows' stages are left out: they are reached through their runs.

        Raises:
            Invalid: ``after`` is neither.
        """
        query = select(sessions).where(ours(tenant), ~sessions.c.id.contains(":"))
        query = query.order_by(sessions.c.created_ms.desc(), sessions.c.id.desc())
        with self._database.read() as tx:
            if after is not None:
                created_ms, last_id = _cursor(tx, tenant, after)
                earlier = and_(sessions.c.created_ms == created_ms, sessions.c.id < last_id)
                query = query.where(or_(sessions.c.created_ms < created_ms, earlier))
            cursor = "{0.created_ms}:{0.id}".format
            return paged(tx, query, lambda row: _with_queue(tx, row), limit=limit, cursor=cursor)

    def patch(self, tenant: Tenant, session_id: str, patch: SessionPatch, *, now_ms: int) -> Session:
        """Change the fields that the patch names.

        Raises:
            NotFound: the tenant has no such session.
        """
        with self._database.write(durable=True, lock=Lock.session(workspace_of(tenant), session_id)) as tx:
            row = found(tx, tenant, session_id)
            changes = patch.changes()
            if patch.version is not None and patch.agent is not None and not row["agent"]:
                changes["agent"] = patch.agent.partition("@")[0]  # the version is one of this agent
            tx.execute(update(sessions).where(sessions.c.lane == row["lane"]).values(**changes, updated_ms=now_ms))
            if "backend" in changes:  # the remembered schemas are those of another database
                tx.execute(update(memory).where(memory.c.lane == row["lane"]).values(schemas=None))
        return self.get(tenant, session_id)

    def delete(self, tenant: Tenant, session_id: str, *, by: Actor = LOCAL) -> tuple[Deleted, ...]:
        """Delete a session for good, with those of its turns' children; return what other stores may still hold.

        From now on nobody finds it or anything in it, none of its turns runs, and its id is free. ``purge`` removes its
        rows.
        """
        with self._database.write(durable=True, lock=WHOLE) as tx:
            of_session = with_children(tx, found(tx, tenant, session_id))
            deletions = [remove(tx, row, by, now_ms=moment_ms()) for row in of_session]
        return tuple(map(self.with_ended_turns, deletions))

    def with_ended_turns(self, deleted: Deleted) -> Deleted:
        """A deleted session with its turns that had ended, too."""
        with self._database.read() as tx:
            ended = tx.execute(select(turns.c.id).where(turns.c.lane == deleted.lane)).scalars().all()
        return Deleted(deleted.lane, {**dict.fromkeys(ended, False), **deleted.turns})

    def deleted_turns(self, *, limit: int) -> tuple[str, ...]:
        """Ids of turns of deleted sessions whose rows are still there."""
        with self._database.read() as tx:
            return tuple(tx.execute(_DELETED_TURNS, {"most": limit}).scalars())

    def has_deleted(self) -> bool:
        """True if a deleted session still has rows."""
        with self._database.read() as tx:
            return purge.has_rows(tx)

    def is_there(self, lane: str) -> bool:
        """False for a session that is deleted."""
        with self._database.read() as tx:
            return find_lane(tx, lane) is not None

    def purge(self, *, limit: int = 200) -> int:
        """Remove the next rows of any deleted session in a transaction of some milliseconds.

        Returns:
            About how many rows; call it again until it is 0.
        """
        with self._database.read() as tx:
            if not purge.has_rows(tx):  # asked every second, and seldom anything to write
                return 0
        with self._database.write(lock=Lock.named("purge")) as tx:
            removed = purge.remove_batch(tx, limit=limit)
        if removed:
            time.sleep(purge.REST_S)
        return removed

    def merge_kernel(self, lane: str, changes: Json, *, fits: Callable[[Json], None]) -> Json:
        """Set some keys of a session's kernel and return all of it; a key whose new value is null is removed.

        Args:
            fits: refuses a kernel by raising. It is called outside the transaction, for it may count tokens, and
                again if the kernel was changed meanwhile.
        """
        while True:
            with self._database.read() as tx:
                before = of_lane(tx, lane)["kernel"]
            removed = [name for name, value in changes.items() if value is None]
            merged = {name: value for name, value in {**before, **changes}.items() if name not in removed}
            fits(merged)
            with self._database.write(lock=Lock.lane(lane)) as tx:
                if of_lane(tx, lane)["kernel"] == before:
                    values = {"kernel": merged, "updated_ms": moment_ms()}
                    tx.execute(update(sessions).where(sessions.c.lane == lane).values(**values))
                    return merged


def _with_queue(tx: Connection, row: Any) -> Session:
    # One that has begun keeps the session busy while it waits for tools, for a person or for another worker. It is
    # always the first, for turns begin in their order.
    first = statements.FIRST.first(tx, {"our_lane": row["lane"]}) if row["queue_depth"] else None
    return rows.session(row, is_busy=first is not None and first["started_ms"] is not None)


def _cursor(tx: Connection, tenant: Tenant, after: str) -> tuple[int, str]:
    """Where a page ended: ``<created_ms>:<id>``, which outlives its session, or the id of a session there is."""
    moment, colon, session_id = after.partition(":")
    if colon and moment.isascii() and moment.isdecimal() and len(moment) < 16:
        return int(moment), session_id
    row = find(tx, tenant, after)
    if row is None:
        raise no_cursor(after)
    return row["created_ms"], after


def find(tx: Connection, tenant: Tenant, session_id: str) -> Any | None:
    """The row of a session, None if the tenant has none of that id."""
    return statements.SESSION.first(tx, {**parameters(tenant), "our_id": session_id})


def found(tx: Connection, tenant: Tenant, session_id: str) -> Any:
    """The row of a session.

    Raises:
        NotFound: the tenant has no such session.
    """
    row = find(tx, tenant, session_id)
    if row is None:
        raise NotFound(f"There is no session {session_id!r}.")
    return row


def find_lane(tx: Connection, lane: str) -> Any | None:
    """The row of a session by its internal key, None if it is deleted."""
    return tx.execute(_OF_LANE, {"our_lane": lane}).mappings().first()


def of_lane(tx: Connection, lane: str) -> Any:
    """The row of a session by its internal key.

    Raises:
        NotFound: the session is deleted.
    """
    row = find_lane(tx, lane)
    if row is None:
        raise NotFound("The session is deleted.")
    return row


def within(owner: Any, scope: Scope) -> tuple[ColumnElement[bool], ...]:
    """The conditions of the sessions that a session may look into; without a user, ``user`` is the session alone.

    Args:
        owner: the row of that session.
    """
    here = sessions.c.workspace == owner["workspace"]
    if scope == "workspace":
        return (here,)
    if scope == "user" and owner["user"] is not None:
        return here, sessions.c.user == owner["user"]
    return here, sessions.c.lane == owner["lane"]


def found_or_added(tx: Connection, tenant: Tenant, new: NewSession, *, now_ms: int) -> Any:
    """The row of the session with this id, which is made if it is new.

    Raises:
        NotFound: it belongs to another user of the workspace, or was deleted since its token was looked up.
    """
    session_id = str(new.id)
    row = find(tx, tenant, session_id)
    if row is None and (session_of(tenant) or find(tx, workspace_of(tenant), session_id) is not None):
        raise NotFound(f"There is no session {session_id!r}.")
    return row or add(tx, tenant, new, now_ms=now_ms)


def add(tx: Connection, tenant: Tenant, new: NewSession, *, now_ms: int) -> dict[str, Any]:
    """Insert a session and return its row."""
    row = {
        **dict.fromkeys(sessions.c.keys()),
        "lane": secrets.token_hex(16),
        "workspace": workspace_of(tenant),
        "id": new.id or new_id("sess_"),
        "agent": new.agent or "",  # none yet: the first turn sets it
        "status": "active",
        "user": user_of(tenant) or new.user,
        "title": new.title,
        "metadata": new.metadata,
        "kernel": new.kernel,
        "model": new.model,
        "budget": new.budget,
        "usage": Usage().as_json(),
        "memory_seen": 0,
        "next_seq": 1,
        "created_ms": now_ms,
        "updated_ms": now_ms,
        "queue_depth": 0,
    }
    tx.execute(insert(sessions), row)
    return row
