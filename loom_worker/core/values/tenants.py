"""Whose data a request may read and change: a whole workspace's, one user's, or that of one session."""

from dataclasses import dataclass

USER_ID = r"^(?!\.\.?$)(?=.*\S)[^/\\%\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]{1,256}$(?!\n)"
"""What the id of a user looks like: nothing in it can be taken for a step of a path, and everything is seen."""


@dataclass(frozen=True, slots=True)
class WorkspaceUser:
    """One user of a workspace. Only sessions created for this user, and what belongs to them, are within reach.

    No str, unlike a workspace: code that takes a name of a workspace alone does not type-check with a user, and so
    cannot grant the whole workspace by mistake.
    """

    workspace: str
    user: str


@dataclass(frozen=True, slots=True)
class WorkspaceSession:
    """One session of a workspace, for which somebody holds a token."""

    workspace: str
    user: str | None
    session: str


Tenant = str | WorkspaceUser | WorkspaceSession
"""A workspace, by its name, one user of it, or one session."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something, as the audit names it."""

    key_id: str = "local"
    """``key_…``, ``env_…`` for a key of LOOM_API_KEYS, ``local`` for this machine, ``retention`` for what expired."""
    user: str | None = None
    """Whom the key acts for."""


LOCAL = Actor()
RETENTION = Actor("retention")


def workspace_of(tenant: Tenant) -> str:
    """The workspace in question."""
    return tenant if isinstance(tenant, str) else tenant.workspace


def user_of(tenant: Tenant) -> str | None:
    """The user to whom the tenant is limited; None for a whole workspace, and for a session without a user."""
    return None if isinstance(tenant, str) else tenant.user


def session_of(tenant: Tenant) -> str | None:
    """The session to which the tenant is limited; None if it is not."""
    return tenant.session if isinstance(tenant, WorkspaceSession) else None
