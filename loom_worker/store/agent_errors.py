"""Errors of tools and of turns, stored in full, for the session they occurred in and for the workspace's operators."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, delete, or_, select

from loom_worker.core.errors import Unavailable
from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import Page, no_cursor
from loom_worker.core.values.tenants import Tenant, workspace_of
from loom_worker.core.values.tools import ErrorFilter, StoredError
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.engines.engine import Lock
from loom_worker.store.schema import agent_errors, sessions
from loom_worker.store.sessions import of_lane
from loom_worker.store.tenants import matching, of_session, ours, paged, parameters, the_row

TRIES = 20
"""Tries to find a free id; there are 16.7 million for each second."""

_COLUMNS = [agent_errors.c[name] for name in StoredError.__slots__ if name != "is_cut"]
_KEPT = (
    select(sessions.c.lane)
    .where(sessions.c.lane == agent_errors.c.lane, sessions.c.workspace == agent_errors.c.workspace)
    .exists()
)
"""False for an error that only waits to be removed, for its session is deleted."""
_ONE = select(*_COLUMNS).where(agent_errors.c.id == bindparam("our_id"), _KEPT)
_OF_TENANT = select(*_COLUMNS).where(agent_errors.c.id == bindparam("our_id"), of_session(agent_errors.c.lane))
_IN_LANE = _ONE.where(agent_errors.c.lane == bindparam("our_lane"))
_INSERT = upsert(agent_errors).on_conflict_do_nothing()
_OLD = select(agent_errors.c.id).where(agent_errors.c.at_ms < bindparam("before_ms")).limit(bindparam("most"))
_EXPIRE = delete(agent_errors).where(agent_errors.c.id.in_(_OLD))


@dataclass(frozen=True, slots=True)
class NewAgentError:
    """An error that is to be stored; secrets have been redacted."""

    lane: str
    """Lane of the session that it occurred in."""
    turn_id: str
    tool_name: str
    """Empty: not a call, but the turn itself failed."""
    short_summary: str
    raw_error: Json
    span_id: str | None = None


class AgentErrors:
    """The table of errors."""

    def __init__(self, database: Database, *, suffix: Callable[[], str] = lambda: secrets.token_hex(3)) -> None:
        """Args: suffix: returns six random hexadecimal digits."""
        self._database = database
        self._suffix = suffix

    def store(self, new: NewAgentError, *, now_ms: int) -> str:
        """Store an error and return its id.

        Raises:
            NotFound: the session is deleted; nothing was written, for nobody would ever remove it.
        """
        named = {name: getattr(new, name) for name in NewAgentError.__slots__}
        with self._database.write(lock=Lock.lane(new.lane)) as tx:
            owner = of_lane(tx, new.lane)
            row = {**named, "workspace": owner["workspace"], "session_id": owner["id"], "at_ms": now_ms}
            for _ in range(TRIES):
                error_id = error_id_of(now_ms, self._suffix())
                if tx.execute(_INSERT, {**row, "id": error_id}).rowcount == 1:
                    return error_id
        raise Unavailable(f"No error id was free in {TRIES} tries.")

    def get(self, tenant: Tenant, error_id: str) -> StoredError:
        """Return an error of any session of the tenant.

        Raises:
            NotFound: the tenant has no such error.
        """
        return self._one(_OF_TENANT, error_id, **parameters(tenant))

    def get_in_lane(self, lane: str, error_id: str) -> StoredError:
        """Return an error of one session.

        Raises:
            NotFound: the session has no such error.
        """
        return self._one(_IN_LANE, error_id, our_lane=lane)

    def page(self, tenant: Tenant, wanted: ErrorFilter, *, limit: int, after: str | None) -> Page[StoredError]:
        """List errors, the newest first; ``after`` is a page's ``next``.

        A filter that matches nothing, such as an unknown session, gives an empty page.

        Raises:
            Invalid: ``after`` is not a cursor of this list.
        """
        query = select(*_COLUMNS).where(*_conditions(tenant, wanted))
        query = query.order_by(agent_errors.c.at_ms.desc(), agent_errors.c.id.desc())
        if after is not None:
            at_ms, last_id = _cursor(after)
            # The first condition alone bounds the walk along the index; with "or" on top SQLite would not see that.
            earlier = or_(agent_errors.c.at_ms < at_ms, agent_errors.c.id < last_id)
            query = query.where(and_(agent_errors.c.at_ms <= at_ms, earlier))
        with self._database.read() as tx:
            cursor = "{0.at_ms}:{0.id}".format
            return paged(tx, query, lambda row: StoredError(**row), limit=limit, cursor=cursor)

    def expire(self, *, before_ms: int, limit: int = 500) -> int:
        """Remove some older errors in a short transaction; return how many. Call it again until that is 0."""
        with self._database.read() as tx:
            if tx.execute(_OLD, {"before_ms": before_ms, "most": 1}).first() is None:
                return 0
        with self._database.write(lock=Lock.named("errors")) as tx:
            return tx.execute(_EXPIRE, {"before_ms": before_ms, "most": limit}).rowcount

    def _one(self, query: Any, error_id: str, **owner: str | None) -> StoredError:
        with self._database.read() as tx:
            return StoredError(**the_row(tx, query, f"error {error_id!r}", our_id=error_id, **owner))


def error_id_of(at_ms: int, suffix: str) -> str:
    """``err_YYYYMMDD_HHMMSS_xxxxxx``, the moment in UTC; 26 characters with a suffix of six."""
    return f"err_{datetime.fromtimestamp(at_ms // 1000, UTC):%Y%m%d_%H%M%S}_{suffix}"


def _conditions(tenant: Tenant, wanted: ErrorFilter) -> list[ColumnElement[bool]]:
    # The first one alone finds the errors by an index.
    in_workspace = agent_errors.c.workspace == workspace_of(tenant)
    conditions: list[ColumnElement[bool]] = [in_workspace, of_session(agent_errors.c.lane, ours(tenant))]
    if wanted.session_id is not None:
        named = (ours(tenant), sessions.c.id == wanted.session_id)
        conditions.append(agent_errors.c.lane == select(sessions.c.lane).where(*named).scalar_subquery())
    if wanted.tool is not None:
        conditions.append(agent_errors.c.tool_name == wanted.tool)
    return [*conditions, *matching(agent_errors, wanted, ())]


def _cursor(after: str) -> tuple[int, str]:
    """The end of a page. It stays valid when its error is gone."""
    moment, _, last_id = after.partition(":")
    if not (moment.isascii() and moment.isdecimal() and len(moment) < 16 and last_id.startswith("err_")):
        raise no_cursor(after)
    return int(moment), last_id
