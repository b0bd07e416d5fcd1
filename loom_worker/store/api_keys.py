"""API keys, and tokens for one session: found by the hash of their secret, ended within their workspace."""

from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, insert, literal, or_, select, update

from loom_worker.core.errors import Conflict
from loom_worker.core.values.api_keys import TOKEN_PREFIX, ApiKey, KeyLimits
from loom_worker.core.values.pages import Page
from loom_worker.core.values.tenants import LOCAL, Actor, Tenant, workspace_of
from loom_worker.store.audit import note_act
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import Lock
from loom_worker.store.schema import DELETED, sessions
from loom_worker.store.sessions import found
from loom_worker.store.tables import api_keys, session_tokens
from loom_worker.store.tenants import checked_cursor, newest_first, of_user, paged, the_row

TOUCH_MS = 60_000
"""A use is written down no more often than this."""

_COLUMNS = [column for column in api_keys.c if column.name != "hash"]
_BY_HASH = select(*_COLUMNS).where(api_keys.c.hash == bindparam("our_hash"))
_maker = api_keys.c
_TOKEN = (
    select(session_tokens, sessions.c.workspace, sessions.c.user, sessions.c.id.label("session"))
    .add_columns(_maker.expires_ms.label("ends_ms"), _maker.revoked_ms, *(_maker[name] for name in KeyLimits.__slots__))
    .join(sessions, and_(sessions.c.lane == session_tokens.c.lane, sessions.c.workspace != DELETED))
    .outerjoin(api_keys, _maker.id == session_tokens.c.made_by)
    .where(session_tokens.c.hash == bindparam("our_hash"))
)
_ANY_KEPT = select(literal(1)).where(api_keys.c.revoked_ms.is_(None)).limit(1)
_TOUCH = (
    update(api_keys)
    .where(
        api_keys.c.id == bindparam("our_id"),
        or_(api_keys.c.last_used_ms.is_(None), api_keys.c.last_used_ms <= bindparam("before_ms")),
    )
    .values(last_used_ms=bindparam("moment_ms"))
)


class KeyRows:
    """The table of API keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, key: ApiKey, digest: str, *, by: Actor = LOCAL) -> None:
        """Store a new key with the hash of its secret."""
        with self._database.write(durable=True, lock=Lock.named("keys")) as tx:
            _insert(tx, key, digest)
            _note(tx, "key.created", key, by, at_ms=key.created_ms)

    def by_hash(self, digest: str) -> ApiKey | None:
        """The key or token whose secret has this hash, also if it has ended; None: there is none."""
        with self._database.read() as tx:
            row = tx.execute(_BY_HASH, {"our_hash": digest}).mappings().first()
            if row is not None:
                return _key(row)
            token = tx.execute(_TOKEN, {"our_hash": digest}).mappings().first()
        return None if token is None else _token(token)

    def add_token(self, tenant: Tenant, session_id: str, digest: str, term: tuple[int, int], *, by: Actor) -> None:
        """Store the hash of a token, and drop all that have expired; NotFound: the tenant has no such session.

        Args:
            term: now, and when the token ends, in ms.
        """
        now_ms, ends_ms = term
        with self._database.write(durable=True, lock=Lock.session(workspace_of(tenant), session_id)) as tx:
            lane = found(tx, tenant, session_id)["lane"]
            tx.execute(delete(session_tokens).where(session_tokens.c.expires_ms <= now_ms))
            row = {"hash": digest, "lane": lane, "made_by": by.key_id, "created_ms": now_ms, "expires_ms": ends_ms}
            tx.execute(insert(session_tokens), row)
            note_act(tx, "token.created", by, workspace=workspace_of(tenant), at_ms=now_ms, session_id=session_id)

    def end_tokens(self, tenant: Tenant, session_id: str, *, now_ms: int, by: Actor) -> None:
        """End all tokens of a session; NotFound: the tenant has no such session."""
        with self._database.write(durable=True, lock=Lock.session(workspace_of(tenant), session_id)) as tx:
            lane = found(tx, tenant, session_id)["lane"]
            if tx.execute(delete(session_tokens).where(session_tokens.c.lane == lane)).rowcount:
                note_act(tx, "token.revoked", by, workspace=workspace_of(tenant), at_ms=now_ms, session_id=session_id)

    def has_kept(self) -> bool:
        """True if some key of any workspace is not revoked; one that has expired counts."""
        with self._database.read() as tx:
            return tx.execute(_ANY_KEPT).first() is not None

    def get(self, tenant: Tenant, key_id: str) -> ApiKey:
        """Return a key.

        Raises:
            NotFound: the tenant has no such key.
        """
        with self._database.read() as tx:
            return _found(tx, tenant, key_id)

    def page(self, tenant: Tenant, *, limit: int, after: str | None) -> Page[ApiKey]:
        """List keys, the newest first, those that have ended too; ``after`` is the id of the last one seen.

        Raises:
            Invalid: ``after`` is not the id of a key.
        """
        query = newest_first(
            select(*_COLUMNS).where(*of_user(api_keys, tenant)), api_keys.c.id, checked_cursor(after, "key_")
        )
        with self._database.read() as tx:
            return paged(tx, query, _key, limit=limit)

    def revoke(self, tenant: Tenant, key_id: str, *, now_ms: int, may_be_last: bool, by: Actor = LOCAL) -> ApiKey:
        """End a key now; one that is revoked already stays as it is.

        Args:
            may_be_last: False refuses to revoke the last key of all workspaces that is not revoked.

        Raises:
            NotFound: the tenant has no such key.
            Conflict: it is the last one (slug ``last-key``).
        """
        with self._database.write(durable=True, lock=Lock.named("keys")) as tx:
            key = _found(tx, tenant, key_id)
            if key.revoked_ms is not None:
                return key
            if not may_be_last and tx.execute(_ANY_KEPT.where(api_keys.c.id != key_id)).first() is None:
                raise Conflict(
                    "This is the last key. Without any, Loom serves every program on its machine without a key, which "
                    "nobody may bring about from elsewhere. Rotate the key, or run `loom keys revoke` on that machine.",
                    "last-key",
                )
            tx.execute(update(api_keys).where(api_keys.c.id == key_id).values(revoked_ms=now_ms))
            _note(tx, "key.revoked", key, by, at_ms=now_ms)
            return _found(tx, tenant, key_id)

    def replace(self, old: ApiKey, new: ApiKey, digest: str, *, ends_ms: int, by: Actor = LOCAL) -> None:
        """Store the key that replaces another one, and end that one.

        Args:
            ends_ms: when the old key ends, unless it expires before; from the new one's ``created_ms`` on.

        Raises:
            NotFound: the old key is not there.
            Conflict: it has ended (slug ``key-ended``).
        """
        now_ms = new.created_ms
        with self._database.write(durable=True, lock=Lock.named("keys")) as tx:
            kept = _found(tx, old.workspace, old.id)
            if (end := kept.end(now_ms)) is not None:
                raise Conflict(f"The key {old.id} is {end}; make a new one.", "key-ended")
            _insert(tx, new, digest)
            expires_ms = ends_ms if kept.expires_ms is None else min(ends_ms, kept.expires_ms)
            changes = {"revoked_ms": now_ms} if ends_ms <= now_ms else {"expires_ms": expires_ms}
            tx.execute(update(api_keys).where(api_keys.c.id == old.id).values(**changes))
            _note(tx, "key.rotated", new, by, at_ms=now_ms, reason=old.id)

    def touch(self, key_id: str, *, now_ms: int) -> None:
        """Write down that a key was used, at most once a minute whichever process asks."""
        with self._database.write(lock=Lock.named("key", key_id)) as tx:
            tx.execute(_TOUCH, {"our_id": key_id, "before_ms": now_ms - TOUCH_MS, "moment_ms": now_ms})


def _note(tx: Connection, action: str, key: ApiKey, by: Actor, *, at_ms: int, reason: str | None = None) -> None:
    scopes = [{"kind": "scope", "name": scope, "outcome": "granted"} for scope in key.scopes]
    about = {"reason": reason, "decisions": () if action == "key.revoked" else scopes}
    note_act(tx, action, by, workspace=key.workspace, at_ms=at_ms, user=key.user or by.user, subject=key.id, **about)


def _found(tx: Connection, tenant: Tenant, key_id: str) -> ApiKey:
    query = select(*_COLUMNS).where(api_keys.c.id == key_id, *of_user(api_keys, tenant))
    return _key(the_row(tx, query, f"key {key_id!r}"))


def _insert(tx: Connection, key: ApiKey, digest: str) -> None:
    values = {column.name: getattr(key, column.name) for column in _COLUMNS}
    tx.execute(insert(api_keys), {**values, "scopes": list(key.scopes), "hash": digest})


def _token(row: Any) -> ApiKey:
    """A token as the key that it is for one session; of a key of the environment, nothing but its id is there."""
    ends_ms = min(filter(None, (row["expires_ms"], row["ends_ms"])))
    same = ("workspace", "user", "session", "created_ms", "revoked_ms", *KeyLimits.__slots__)
    own = {"id": TOKEN_PREFIX + row["made_by"], "name": "", "prefix": "", "scopes": ("chat",), "expires_ms": ends_ms}
    return ApiKey(**own, **{name: row[name] for name in same})


def _key(row: Any) -> ApiKey:
    return ApiKey(**{**row, "scopes": tuple(row["scopes"])})
