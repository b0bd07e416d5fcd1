"""Who of a channel is which user, and for whom a turn is asked therefore."""

from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from loom_worker.core.errors import Conflict, Flaw, Forbidden, Invalid
from loom_worker.core.values.channels import Pairing
from loom_worker.core.values.pages import Page
from loom_worker.core.values.tenants import Actor, Tenant, user_of, workspace_of
from loom_worker.core.values.turns import NewTurn
from loom_worker.store.audit import note_act
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import Lock
from loom_worker.store.schema import sessions
from loom_worker.store.tables import pairings
from loom_worker.store.tenants import newest_first, of_user, paged, the_row

_COLUMNS = [pairings.c[name] for name in Pairing.__slots__]
_WHO = select(*_COLUMNS).where(
    pairings.c.workspace == bindparam("our_workspace"),
    pairings.c.channel == bindparam("our_channel"),
    pairings.c.identity == bindparam("our_identity"),
)
_SET_USER = update(sessions).where(sessions.c.lane == bindparam("our_lane")).values(user=bindparam("whose"))


class Pairings:
    """The table of pairings."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, new: Pairing, *, by: Actor) -> Pairing:
        """Say who somebody of a channel is; saying it again changes nothing.

        Raises:
            Conflict: somebody else is, by an earlier pairing.
        """
        with self._database.write(durable=True, lock=Lock.named("pairings", new.workspace)) as tx:
            known = _of(tx, new.workspace, new.channel, new.identity)
            if known is None:
                tx.execute(insert(pairings), {name: getattr(new, name) for name in Pairing.__slots__})
                _note(tx, "pairing.created", new, by, at_ms=new.created_ms)
                return new
        if known.user != new.user:
            raise Conflict(
                f"{new.identity!r} of the channel {new.channel!r} is another user already: delete {known.id} first.",
                "already-paired",
            )
        return known

    def remove(self, tenant: Tenant, pairing_id: str, *, by: Actor, now_ms: int) -> None:
        """Forget who somebody of a channel is; sessions stay whose they are.

        Raises:
            NotFound: the tenant has no such pairing.
        """
        with self._database.write(durable=True, lock=Lock.named("pairings", workspace_of(tenant))) as tx:
            ours = select(*_COLUMNS).where(pairings.c.id == pairing_id, *of_user(pairings, tenant))
            row = the_row(tx, ours, f"pairing {pairing_id!r}")
            tx.execute(delete(pairings).where(pairings.c.id == pairing_id))
            _note(tx, "pairing.deleted", Pairing(**row), by, at_ms=now_ms)

    def page(self, tenant: Tenant, *, limit: int, after: str | None) -> Page[Pairing]:
        """List pairings, the newest first; ``after`` is the id of the last one seen."""
        query = newest_first(select(*_COLUMNS).where(*of_user(pairings, tenant)), pairings.c.id, after)
        with self._database.read() as tx:
            return paged(tx, query, lambda row: Pairing(**row), limit=limit)


def asking_user(tx: Connection, tenant: Tenant, new: NewTurn) -> str | None:
    """The user for whom a turn is asked: paired with whom the client names in the channel, else of that name.

    Raises:
        Forbidden: the client's key acts for another user.
    """
    named, own = new.user, user_of(tenant)
    if named is not None and new.channel is not None:
        known = _of(tx, workspace_of(tenant), new.channel.name, named)
        named = named if known is None else known.user
    if named is not None and own not in (None, named):
        raise Forbidden(f"The key acts for one user, and {new.user!r} is another.", "other-user")
    return named


def with_user(tx: Connection, owner: Any, user: str | None) -> Any:
    """The session's row with its user, whom its first turn settles unless it was made for one.

    Raises:
        Invalid: it is another user's, or has had turns of nobody in particular.
    """
    if user is None or owner["user"] == user:
        return owner
    if owner["user"] is None and owner["next_seq"] == 1:
        tx.execute(_SET_USER, {"our_lane": owner["lane"], "whose": user})
        return {**owner, "user": user}
    whose = "no user" if owner["user"] is None else "another user"
    raise Invalid(
        f"Session {owner['id']!r} belongs to {whose}: send the turn to a session of {user!r}, or leave user out.",
        (Flaw("/user", f"the session belongs to {whose}"),),
        "user-mismatch",
    )


def _of(tx: Connection, workspace: str, channel: str, identity: str) -> Pairing | None:
    wanted = {"our_workspace": workspace, "our_channel": channel, "our_identity": identity}
    row = tx.execute(_WHO, wanted).mappings().first()
    return None if row is None else Pairing(**row)


def _note(tx: Connection, action: str, pairing: Pairing, by: Actor, *, at_ms: int) -> None:
    about = {"user": pairing.user, "channel": pairing.channel, "subject": pairing.id}
    note_act(tx, action, by, workspace=pairing.workspace, at_ms=at_ms, **about)
