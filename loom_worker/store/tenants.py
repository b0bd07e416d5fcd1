"""Which rows a tenant may read and change, and the pages of its lists. Every query for a client has such a condition.

Whatever belongs to a session is reached through it: the session decides whose it is, and whether it is deleted.
"""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, Text, and_, bindparam, or_, select

from loom_worker.core.errors import NotFound
from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import L, Page, no_cursor, page_of
from loom_worker.core.values.tenants import Tenant, session_of, user_of, workspace_of
from loom_worker.store.schema import sessions

_workspace = bindparam("our_workspace", type_=Text())
_user = bindparam("our_user", type_=Text())
_session = bindparam("our_session", type_=Text())

OURS = and_(
    sessions.c.workspace == _workspace,
    or_(_user.is_(None), sessions.c.user == _user),
    or_(_session.is_(None), sessions.c.id == _session),
)
"""True of a session of the tenant, in statements that are built once; executed with ``parameters(tenant)``."""


def parameters(tenant: Tenant) -> Json:
    """The parameters of OURS."""
    return {"our_workspace": workspace_of(tenant), "our_user": user_of(tenant), "our_session": session_of(tenant)}


def ours(tenant: Tenant) -> ColumnElement[bool]:
    """True of a session of the tenant, in statements that are built for each use: here an index of users serves."""
    limits = {"workspace": workspace_of(tenant), "user": user_of(tenant), "id": session_of(tenant)}
    return and_(*(sessions.c[name] == value for name, value in limits.items() if value is not None))


def of_session(lane: ColumnElement[str], is_ours: ColumnElement[bool] = OURS) -> ColumnElement[bool]:
    """True of a row whose session is the tenant's and not deleted.

    Args:
        lane: the row's column with the internal key of its session.
        is_ours: OURS, or ``ours(tenant)``.
    """
    return select(sessions.c.lane).where(sessions.c.lane == lane, is_ours).exists()


def of_user(table: Table, tenant: Tenant) -> list[ColumnElement[bool]]:
    """True of the tenant's rows of a table that names workspace and user itself."""
    user = user_of(tenant)
    in_workspace = table.c.workspace == workspace_of(tenant)
    return [in_workspace] if user is None else [in_workspace, table.c.user == user]


def the_row(tx: Connection, query: Select[*tuple[Any, ...]], what: str, **values: object) -> Any:
    """The row that a query finds; NotFound: there is no ``what``."""
    row = tx.execute(query, values).mappings().first()
    if row is None:
        raise NotFound(f"There is no {what}.")
    return row


def matching(table: Table, where: Any, names: Iterable[str]) -> Iterator[ColumnElement[bool]]:
    """The conditions of a filter with ``since_ms`` and ``until_ms``, the first moment that is too late; None is any.

    Args:
        names: fields of the filter that are called as their columns are.
    """
    for name in names:
        if (wanted := getattr(where, name)) is not None:
            yield table.c[name] == wanted
    if where.since_ms is not None:
        yield table.c.at_ms >= where.since_ms
    if where.until_ms is not None:
        yield table.c.at_ms < where.until_ms


def checked_cursor(after: str | None, prefix: str) -> str | None:
    """Return the id that a page ended with, None for the first page.

    Raises:
        Invalid: it is not such an id; a client would otherwise get the first page again and take it for more.
    """
    if after is not None and not after.startswith(prefix):
        raise no_cursor(after)
    return after


def newest_first(query: Select[*tuple[Any, ...]], key: ColumnElement[Any], after: object) -> Select[*tuple[Any, ...]]:
    """The rows in descending order of a key; those behind ``after``, the key of the last one seen, if it is given."""
    query = query.order_by(key.desc())
    return query if after is None else query.where(key < after)


def paged(
    tx: Connection,
    query: Select[*tuple[Any, ...]],
    read: Callable[[Any], L],
    *,
    limit: int,
    cursor: Callable[[L], str] = attrgetter("id"),
) -> Page[L]:
    """A page of what an ordered query finds.

    Args:
        read: makes the value of a row; it is called for the rows of the page, and one more, alone.
        cursor: what leads on behind a value.
    """
    return page_of(map(read, tx.execute(query.limit(limit + 1)).mappings()), limit=limit, cursor=cursor)
