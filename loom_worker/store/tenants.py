"""Which rows a tenant may read and change. Every query for a client carries one of these conditions.

Whatever belongs to a session is reached through it: the session decides whose it is, and whether it is deleted.
"""

from sqlalchemy import ColumnElement, Text, and_, bindparam, or_, select

from loom_worker.core.values.json import Json
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
