"""Files of clients and tools: whose they are, and which sessions use them; their bytes are in the blob tier.

A file that no session has used is kept for a day, any other as long as one of its sessions.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, or_, select, update

from loom_worker.core.errors import Conflict, Flaw, Invalid, NotFound
from loom_worker.core.values.media import File, InputPart
from loom_worker.core.values.pages import Page
from loom_worker.core.values.tenants import Tenant, WorkspaceUser, session_of, user_of, workspace_of
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.engines.engine import WHOLE, Lock
from loom_worker.store.schema import sessions
from loom_worker.store.sessions import find_lane
from loom_worker.store.tables import file_uses, files
from loom_worker.store.tenants import checked_cursor, newest_first, of_user, ours, paged

UNUSED_MS = 24 * 3600 * 1000
"""How long a file is kept that no session has used."""
FULL = "files-full"
"""The problem of a file for which its workspace has no room."""
GONE = "There is no file {!r}, or it has expired."

_COLUMNS = tuple(File.__slots__)
_of_session = and_(file_uses.c.file_id == files.c.id, sessions.c.lane == file_uses.c.lane)
_live = select(file_uses.c.file_id).where(_of_session, sessions.c.workspace == files.c.workspace).exists()


class FileRows:
    """The tables of files and of their uses."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, file: File, *, most_bytes: int, lane: str | None = None) -> None:
        """Add a file whose bytes are stored; one that has a row already keeps it.

        Args:
            most_bytes: of all files of its workspace together.
            lane: the session that uses it; None: none does yet.

        Raises:
            Conflict: the workspace has no room for it (slug ``files-full``).
        """
        with self._database.write(durable=True, lock=Lock.named("files", file.workspace)) as tx:
            if tx.execute(select(files.c.id).where(files.c.id == file.id)).first() is None:
                _insert(tx, [file], most_bytes=most_bytes)
            if lane is not None and find_lane(tx, lane) is not None:
                _use(tx, [file.id], lane, file.session_id)

    def get(self, tenant: Tenant, file_id: str) -> File:
        """A file of a tenant; NotFound: there is none of that id."""
        with self._database.read() as tx:
            row = tx.execute(select(files).where(files.c.id == file_id, _visible(tenant))).mappings().first()
        if row is None:
            raise NotFound(GONE.format(file_id))
        return _file(row)

    def named(self, file_id: str) -> File | None:
        """A file by its id alone, for who has it from a session's messages."""
        with self._database.read() as tx:
            row = tx.execute(select(files).where(files.c.id == file_id)).mappings().first()
        return None if row is None else _file(row)

    def page(self, tenant: Tenant, *, session_id: str | None, limit: int, after: str | None) -> Page[File]:
        """List a tenant's files, the newest first; of one session, where its id is given."""
        query = select(files).where(_visible(tenant, session_id))
        query = newest_first(query, files.c.id, checked_cursor(after, "file_"))
        with self._database.read() as tx:
            return paged(tx, query, _file, limit=limit)

    def remove(self, tenant: Tenant, file_id: str) -> None:
        """Remove a file's row; NotFound: the tenant has none of that id."""
        with self._database.write(durable=True, lock=WHOLE) as tx:
            if not tx.execute(delete(files).where(files.c.id == file_id, _visible(tenant))).rowcount:
                raise NotFound(GONE.format(file_id))

    def take_abandoned(self, *, after: str, now_ms: int, limit: int) -> tuple[tuple[str, ...], str]:
        """Remove what no session has any more, looking at the next few files.

        Returns:
            The ids of the removed files, and the id to go on after; empty at the end.
        """
        some = select(files.c.id, files.c.is_used, files.c.created_ms, _live.label("is_live"))
        with self._database.read() as tx:
            found = tx.execute(some.where(files.c.id > after).order_by(files.c.id).limit(limit)).all()
        before_ms = now_ms - UNUSED_MS
        asked = [each.id for each in found if not each.is_live and (each.is_used or each.created_ms < before_ms)]
        gone: tuple[str, ...] = ()
        if asked:  # looked at once more: a session may have taken one meanwhile
            is_over = or_(files.c.is_used, files.c.created_ms < before_ms)
            query = delete(files).where(files.c.id.in_(asked), ~_live, is_over).returning(files.c.id)
            with self._database.write(lock=WHOLE) as tx:
                gone = tuple(tx.execute(query).scalars())
        return gone, found[-1].id if len(found) == limit else ""


def take(tx: Connection, owner: Any, parts: Iterable[InputPart], *, most_bytes: int) -> None:
    """Give a session the files of a turn that is accepted.

    Args:
        owner: the session's row.
        parts: of the turn; the bytes that came with them are stored.

    Raises:
        Conflict: the workspace has no room for them.
        Invalid: one of them is gone meanwhile.
    """
    named = [(part.file, part.data is not None) for part in parts if part.file]
    added, ids = [file for file, is_new in named if is_new], [file.id for file, is_new in named if not is_new]
    if ids:
        query = select(files.c.id).where(files.c.id.in_(ids), files.c.workspace == owner["workspace"])
        for lost in set(ids) - set(tx.execute(query).scalars()):
            raise Invalid(GONE.format(lost), (Flaw("/input", f"there is no file {lost}"),), "file-not-found")
    if added:
        _insert(tx, added, most_bytes=most_bytes)
    if used := [*(file.id for file in added), *ids]:
        _use(tx, used, owner["lane"], owner["id"])


def abandon(tx: Connection, who: WorkspaceUser) -> None:
    """Let the sweep remove the files of a user who is deleted, but for those that sessions of others use."""
    is_theirs = and_(*of_user(files, who))
    tx.execute(update(files).where(is_theirs, ~files.c.is_used).values(created_ms=0))
    tx.execute(update(files).where(is_theirs).values(user=None))


def _insert(tx: Connection, new: list[File], *, most_bytes: int) -> None:
    held = select(func.coalesce(func.sum(files.c.size_bytes), 0)).where(files.c.workspace == new[0].workspace)
    total: int = tx.execute(held).scalar_one()
    if total + sum(file.size_bytes for file in new) > most_bytes:
        text = (
            f"The workspace's files take {total:,} of {most_bytes:,} bytes, and this does not fit. Delete files "
            "(DELETE /v1/files/{id}) or sessions that have some, or raise LOOM_WORKSPACE_FILE_BYTES."
        )
        raise Conflict(text, FULL)
    rows = [{"is_used": False, **{name: getattr(file, name) for name in _COLUMNS}} for file in new]
    tx.execute(insert(files), rows)


def _use(tx: Connection, ids: list[str], lane: str, session_id: str | None) -> None:
    tx.execute(upsert(file_uses).on_conflict_do_nothing(), [{"file_id": one, "lane": lane} for one in ids])
    first = func.coalesce(files.c.session_id, session_id)
    tx.execute(update(files).where(files.c.id.in_(ids)).values(is_used=True, session_id=first))


def _visible(tenant: Tenant, session_id: str | None = None) -> ColumnElement[bool]:
    """True of a file that a session of the tenant uses, or none yet; what another user sent is that user's until then.

    Args:
        session_id: of this session alone.
    """
    used = select(file_uses.c.file_id).where(_of_session, ours(tenant))
    if session_id is not None:
        return used.where(sessions.c.id == session_id).exists()
    if session_of(tenant) is not None:
        return used.exists()
    unused = [files.c.workspace == workspace_of(tenant), ~files.c.is_used]
    unused += [] if user_of(tenant) is None else [files.c.user == user_of(tenant)]
    return or_(used.exists(), and_(*unused))


def _file(row: Any) -> File:
    return File(**{name: row[name] for name in _COLUMNS})
