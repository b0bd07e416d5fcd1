"""Shared memory: values with versions that agents keep by key, for themselves or for others, and their changes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Integer, Select, and_, bindparam, delete, func, select

from loom_worker.core.errors import Conflict, Flaw, Invalid, NotFound
from loom_worker.core.values.children import Ancestor
from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import Page
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.engines.engine import WHOLE, Lock
from loom_worker.store.schema import sessions, turns
from loom_worker.store.schema import shared_memory as rows
from loom_worker.store.tables import run_stages

KEY_CHARS = 256
VALUE_BYTES = 64 * 1024
"""Bytes of a value as JSON in UTF-8."""
MOST_KEYS = 10_000
"""Keys of one namespace; about as many deletions are remembered in addition."""
TRIMMED = 200
"""How many of the oldest deletions are forgotten at a time when too many are remembered."""

RUN = "RUN"
"""The namespace of runs and of swarms in them. No tool takes this name, so no metadata of a session leads there."""
MEMBERS = {"WORKFLOW": "workflow_id", "SWARM": "swarm_id"}
"""Keys of a session's metadata that name the workflow or swarm it belongs to."""
_NAMESPACE = and_(*(rows.c[name] == bindparam(f"our_{name}") for name in ("workspace", "namespace", "owner")))
_KEY = and_(_NAMESPACE, rows.c.key == bindparam("our_key"))
_LIVE = and_(_NAMESPACE, rows.c.is_deleted.is_(False))
_ROW = select(rows).where(_KEY)
_REVISION = select(func.coalesce(func.max(rows.c.revision), 0)).where(_NAMESPACE)
_COUNT = select(func.count(rows.c.key)).where(_NAMESPACE)
_LIVE_COUNT = select(func.count()).select_from(rows).where(_LIVE)
_CHANGES = select(rows).where(_NAMESPACE, rows.c.revision > bindparam("since")).order_by(rows.c.revision)
_LISTED = (rows.c.key, rows.c.version, rows.c.updated_by, rows.c.updated_ms)
_LIST = select(*_LISTED).where(_LIVE, rows.c.key > bindparam("after_key")).order_by(rows.c.key)
_BEGIN = select(*_LISTED).where(_LIVE).order_by(rows.c.key)
_TURN = select(turns.c.run_id, turns.c.ancestors, turns.c.lane).where(turns.c.id == bindparam("our_id"))
_STAGE = select(run_stages.c.role, run_stages.c.conversation).where(
    run_stages.c.run_id == bindparam("our_run"), run_stages.c.turn_id == bindparam("our_turn")
)
_METADATA = select(sessions.c.metadata).where(sessions.c.lane == bindparam("our_lane"))
_put = upsert(rows)
_CHANGED = ("value", "is_deleted", "version", "revision", "updated_by", "updated_ms")
_PUT = _put.on_conflict_do_update(
    index_elements=["workspace", "namespace", "owner", "key"], set_={name: _put.excluded[name] for name in _CHANGED}
)
_OLDEST_DELETED = (
    select(rows.c.key)
    .where(_NAMESPACE, rows.c.is_deleted.is_(True))
    .order_by(rows.c.revision)
    .limit(bindparam("most", type_=Integer))
)
_TRIM = delete(rows).where(_NAMESPACE, rows.c.key.in_(_OLDEST_DELETED))


@dataclass(frozen=True, slots=True)
class Namespace:
    """The keys of one owner; only these three fields together lead to them."""

    workspace: str
    name: str
    """AGENT, WORKFLOW, SWARM, GLOBAL or RUN."""
    owner: str
    """Name of an agent, id of a workflow or a swarm; empty for the namespace of the whole workspace."""


@dataclass(frozen=True, slots=True)
class KeyWrite:
    """Who changes a key, when, and which version it must have."""

    by: str
    """Who does it, as readers see it."""
    now_ms: int
    expected_version: int | None = None
    """The version that the key must have; 0: it must not exist; None: any."""


@dataclass(frozen=True, slots=True)
class SharedEntry:
    """A key as it is, or as it was when it was deleted."""

    key: str
    version: int
    """1, 2, 3…; it counts on after a deletion, for as long as that is remembered."""
    updated_by: str
    updated_ms: int
    value: Any = None
    is_deleted: bool = False
    revision: int = 0
    """Revision of the namespace when the key was changed; lists leave it out."""


@dataclass(frozen=True, slots=True)
class SharedChanges:
    """Keys that were changed, in the order of their last changes."""

    entries: tuple[SharedEntry, ...]
    revision: int
    """How far the changes have been read: pass it as ``since`` to go on."""
    has_more: bool


def _lock(namespace: Namespace) -> Lock:
    """Keeps its revision, and the number of its keys, from others."""
    return Lock.named("shared memory", namespace.workspace, namespace.name, namespace.owner)


class SharedMemory:
    """The table of shared memory.

    Versions are compared and assigned in the transaction that writes. It is not durable by itself: the end of the turn
    that it belongs to is, and carries it to the disk.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def owners(self, turn_id: str) -> Mapping[str, tuple[str, object]]:
        """For a turn, the namespace that it means by WORKFLOW and by SWARM, with the owner; what has none is missing.

        A turn of a run works for that run; outside of runs the session counts that was asked first, by its metadata.
        """
        with self._database.read() as tx:
            turn = tx.execute(_TURN, {"our_id": turn_id}).first()
            if turn is None:
                return {}
            first = next(iter(Ancestor.of_rows(turn.ancestors)), Ancestor(turn_id, turn.lane, ""))
            if turn.run_id is None:
                metadata = tx.execute(_METADATA, {"our_lane": first.lane}).scalar() or {}
                return {name: (name, metadata.get(member)) for name, member in MEMBERS.items()}
            stage = tx.execute(_STAGE, {"our_run": turn.run_id, "our_turn": first.turn_id}).first()
            return {} if stage is None else _in_run(turn.run_id, *stage)

    def write(self, namespace: Namespace, key: str, value: object, change: KeyWrite) -> int:
        """Set a key and return its new version.

        Args:
            value: any JSON value.

        Raises:
            Conflict: the key has another version than expected: ``args[1]``, 0 if the key does not exist.
            Invalid: the key or the value is invalid or too long, or the namespace is full.
        """
        check_key(key)
        _check_value(value)
        with self._database.write(lock=_lock(namespace)) as tx:
            before = _row(tx, namespace, key)
            _check_version(before, key, change.expected_version)
            if before is None or before["is_deleted"]:
                _make_room(tx, namespace, before)
            return _put_row(tx, namespace, before, {"key": key, "value": [value]}, change)

    def read(self, namespace: Namespace, key: str) -> SharedEntry:
        """Return a key with its value.

        Raises:
            NotFound: the key does not exist.
            Invalid: it is not a valid key.
        """
        check_key(key)
        with self._database.read() as tx:
            row = _row(tx, namespace, key)
        if row is None or row["is_deleted"]:
            raise NotFound(f"There is no key {key!r}.")
        return _entry(row)

    def delete(self, namespace: Namespace, key: str, change: KeyWrite) -> int:
        """Remove a key and return the version of its removal.

        Raises:
            NotFound: the key does not exist.
            Conflict: it has another version than expected: ``args[1]``.
            Invalid: it is not a valid key.
        """
        check_key(key)
        with self._database.write(lock=_lock(namespace)) as tx:
            before = _row(tx, namespace, key)
            if before is None or before["is_deleted"]:
                raise NotFound(f"There is no key {key!r}.")
            _check_version(before, key, change.expected_version)
            return _put_row(tx, namespace, before, {"key": key, "value": None}, change)

    def page(self, namespace: Namespace, prefix: str, *, limit: int, after: str | None) -> Page[SharedEntry]:
        """List the keys with a prefix, without values, by their code points; ``after`` is the last key seen.

        Raises:
            Invalid: no key can have this prefix, or ``after`` is not a valid key.
        """
        query = _BEGIN if after is None else _LIST
        if after is not None:
            check_key(after)
        with self._database.read() as tx:
            wanted = {**_parameters(namespace), **({} if after is None else {"after_key": after})}
            listed = [
                SharedEntry(**row)
                for row in tx.execute(_with_prefix(query, prefix).limit(limit + 1), wanted).mappings()
            ]
        items = tuple(listed[:limit])
        return Page(items, items[-1].key if len(listed) > limit else None)

    def changes(self, namespace: Namespace, prefix: str, *, since: int, limit: int) -> SharedChanges:
        """Keys with a prefix that were changed or deleted after a revision of the namespace.

        Each key comes once, as it is now. The changes since 0 leave deletions out, so they are all keys there are.

        Raises:
            Invalid: no key can have this prefix.
        """
        query = _with_prefix(_CHANGES if since else _CHANGES.where(_LIVE), prefix).limit(limit + 1)
        with self._database.read() as tx:
            entries = [_entry(row) for row in tx.execute(query, {**_parameters(namespace), "since": since}).mappings()]
            revision: int = tx.execute(_REVISION, _parameters(namespace)).scalar_one()
        if len(entries) <= limit:
            return SharedChanges(tuple(entries), revision, has_more=False)
        return SharedChanges(tuple(entries[:limit]), entries[limit - 1].revision, has_more=True)

    def expire(self, *, before_ms: int, limit: int = 500) -> int:
        """Forget some older deletions; return how many. Call it again until that is 0.

        The latest change of a namespace stays whatever its age: the count of revisions goes on from it.
        """
        later = rows.alias()
        same = and_(*(later.c[name] == rows.c[name] for name in ("workspace", "namespace", "owner")))
        is_latest = ~select(later.c.key).where(same, later.c.revision > rows.c.revision).exists()
        is_old = and_(rows.c.is_deleted.is_(True), rows.c.updated_ms < before_ms, ~is_latest)
        key = (rows.c.workspace, rows.c.namespace, rows.c.owner, rows.c.key)
        with self._database.read() as tx:
            old = tx.execute(select(*key, rows.c.version).where(is_old).limit(limit)).all()
        if not old:
            return 0
        with self._database.write(lock=WHOLE) as tx:
            removed = 0
            for *key_of_row, version in old:  # a key that was written again meanwhile has another version
                same_row = and_(*(column == value for column, value in zip(key, key_of_row, strict=True)))
                removed += tx.execute(delete(rows).where(same_row, rows.c.version == version)).rowcount
        return removed


def _in_run(run_id: str, role: str, conversation: str) -> dict[str, tuple[str, object]]:
    """What a stage means by the names; a swarm is known by its place in the run, which may be longer than an owner."""
    if role not in ("vote", "judge"):
        return {"WORKFLOW": (RUN, run_id)}
    place = conversation.rpartition("votes." if role == "vote" else "judge")[0]
    return {"WORKFLOW": (RUN, run_id), "SWARM": (RUN, f"{run_id}/{sha256(place.encode()).hexdigest()[:16]}")}


def check_key(key: str) -> None:
    """Return if this is a valid key.

    Raises:
        Invalid: it is empty, too long, or has characters that the store or JSON cannot carry.
    """
    if not 1 <= len(key) <= KEY_CHARS:
        raise _invalid("/key", f"a key has 1 to {KEY_CHARS} characters")
    if not is_plain(key):
        raise _invalid("/key", "a key holds no NUL and no lone surrogate")


def is_plain(text: str) -> bool:
    """True if a key can hold this text; in some places SQLite cuts a text at a NUL."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def after_prefix(prefix: str) -> str | None:
    """The first text behind all texts with a prefix, by code points; None if there is none.

    A range of keys, unlike LIKE, has no wildcards and respects case.
    """
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at])
        if code < 0x10FFFF:
            return prefix[:at] + chr(
                0xE000 if code == 0xD7FF else code + 1
            )  # surrogates, which lie between, are not characters
    return None


def _with_prefix(query: Select[Any], prefix: str) -> Select[Any]:
    if not is_plain(prefix) or len(prefix) > KEY_CHARS:
        raise _invalid("/prefix", f"a prefix has at most {KEY_CHARS} characters, no NUL and no lone surrogate")
    end = after_prefix(prefix)
    query = query.where(rows.c.key >= prefix) if prefix else query
    return query if end is None else query.where(rows.c.key < end)


def _parameters(namespace: Namespace) -> dict[str, str]:
    return {"our_workspace": namespace.workspace, "our_namespace": namespace.name, "our_owner": namespace.owner}


def _row(tx: Connection, namespace: Namespace, key: str) -> Any | None:
    return tx.execute(_ROW, {**_parameters(namespace), "our_key": key}).mappings().first()


def _put_row(tx: Connection, namespace: Namespace, before: Any | None, new: Json, change: KeyWrite) -> int:
    version: int = 1 + (0 if before is None else before["version"])
    row = {
        "workspace": namespace.workspace,
        "namespace": namespace.name,
        "owner": namespace.owner,
        **new,
        "is_deleted": new["value"] is None,
        "version": version,
        "revision": 1 + tx.execute(_REVISION, _parameters(namespace)).scalar_one(),
        "updated_by": change.by,
        "updated_ms": change.now_ms,
    }
    tx.execute(_PUT, row)
    return version


def _make_room(tx: Connection, namespace: Namespace, before: Any | None) -> None:
    """Refuse one key too many; forget the oldest deletions where too many are remembered."""
    count = tx.execute(_COUNT, _parameters(namespace)).scalar_one()  # of an index alone, so cheap
    if count >= MOST_KEYS and tx.execute(_LIVE_COUNT, _parameters(namespace)).scalar_one() >= MOST_KEYS:
        raise _invalid("/key", f"there are {MOST_KEYS:,} keys; delete some")
    if before is None and count >= 2 * MOST_KEYS:
        tx.execute(_TRIM, {**_parameters(namespace), "most": TRIMMED})


def _check_value(value: object) -> None:
    try:
        size_bytes = len(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise _invalid("/value", "must be JSON, without NaN and lone surrogates") from error
    if size_bytes > VALUE_BYTES:
        raise _invalid("/value", f"has {size_bytes:,} bytes as JSON, {VALUE_BYTES:,} may be kept")


def _check_version(before: Any | None, key: str, expected: int | None) -> None:
    version = 0 if before is None or before["is_deleted"] else before["version"]
    if expected is not None and expected != version:
        raise Conflict(f"{key!r} has version {version}, not {expected}.", version)


def _invalid(pointer: str, detail: str) -> Invalid:
    return Invalid(f"{pointer[1:]}: {detail}", (Flaw(pointer, detail),))


def _entry(row: Any) -> SharedEntry:
    # In a list, for SQLite would keep a bare number of many digits as a float.
    (value,) = row["value"] or (None,)
    return SharedEntry(**{name: row[name] for name in SharedEntry.__slots__ if name != "value"}, value=value)
