"""What agents keep by name, for themselves or for others: values with versions, and what has changed since."""

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Integer, Select, and_, bindparam, delete, func, select
from sqlalchemy.dialects.sqlite import insert as upsert

from loom_worker.core.errors import Conflict, Flaw, Invalid, NotFound
from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import Page
from loom_worker.store.database import Database
from loom_worker.store.schema import shared_memory as rows

KEY_CHARS = 256
VALUE_BYTES = 64 * 1024
"""Of a value as JSON in UTF-8."""
MOST_KEYS = 10_000
"""On a shelf; about as many deletions are remembered beside them."""
TRIMMED = 200
"""So many of the oldest deletions are forgotten at a time when too many are remembered."""

_SHELF = and_(*(rows.c[name] == bindparam(f"our_{name}") for name in ("workspace", "namespace", "owner")))
_KEY = and_(_SHELF, rows.c.key == bindparam("our_key"))
_LIVE = and_(_SHELF, rows.c.is_deleted.is_(False))
_ROW = select(rows).where(_KEY)
_REVISION = select(func.coalesce(func.max(rows.c.revision), 0)).where(_SHELF)
_COUNT = select(func.count(rows.c.key)).where(_SHELF)
_LIVE_COUNT = select(func.count()).select_from(rows).where(_LIVE)
_CHANGES = select(rows).where(_SHELF, rows.c.revision > bindparam("since")).order_by(rows.c.revision)
_LISTED = (rows.c.key, rows.c.version, rows.c.updated_by, rows.c.updated_ms)
_LIST = select(*_LISTED).where(_LIVE, rows.c.key > bindparam("after_key")).order_by(rows.c.key)
_BEGIN = select(*_LISTED).where(_LIVE).order_by(rows.c.key)
_put = upsert(rows)
_CHANGED = ("value", "is_deleted", "version", "revision", "updated_by", "updated_ms")
_PUT = _put.on_conflict_do_update(
    index_elements=["workspace", "namespace", "owner", "key"], set_={name: _put.excluded[name] for name in _CHANGED}
)
_OLDEST_DELETED = (
    select(rows.c.key)
    .where(_SHELF, rows.c.is_deleted.is_(True))
    .order_by(rows.c.revision)
    .limit(bindparam("most", type_=Integer))
)
_TRIM = delete(rows).where(_SHELF, rows.c.key.in_(_OLDEST_DELETED))


@dataclass(frozen=True, slots=True)
class Shelf:
    """One owner's namespace; what lies on it is reached by these three together, and by nothing else."""

    workspace: str
    namespace: str
    owner: str
    """Of an agent its name, of a workflow or a swarm its id; empty for the shelf of the whole workspace."""


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to a key."""

    by: str
    """Who does it, for those who look on."""
    now_ms: int
    expected_version: int | None = None
    """The version the key must have; 0: it must not be there; None: whatever it has."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key as it is, or as it was when it was deleted."""

    key: str
    version: int
    """1, 2, 3…; it counts on through deletions, for as long as these are remembered."""
    updated_by: str
    updated_ms: int
    value: Any = None
    is_deleted: bool = False
    revision: int = 0
    """Of the shelf, when the key was changed; not told by lists."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Keys that were changed, in the order of their last changes."""

    entries: tuple[Entry, ...]
    revision: int
    """What was looked through: pass it as ``since`` to go on."""
    has_more: bool


class SharedMemory:
    """The table of shared memory.

    Versions are compared and given in the transaction that writes. It is no durable one: the end of the turn it belongs
    to is, and carries it to the disk.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, shelf: Shelf, key: str, value: object, change: Change) -> int:
        """Set a key and return its new version.

        Args:
            value: any JSON value.

        Raises:
            Conflict: the key has another version than expected; ``args[1]`` is it, 0 if the key is not there.
            Invalid: the key or the value is none, or too long, or the shelf is full.
        """
        check_key(key)
        _check_value(value)
        with self._database.write() as tx:
            before = _row(tx, shelf, key)
            _check_version(before, key, change.expected_version)
            if before is None or before["is_deleted"]:
                _make_room(tx, shelf, before)
            return _put_row(tx, shelf, before, {"key": key, "value": [value]}, change)

    def read(self, shelf: Shelf, key: str) -> Entry:
        """Return a key with its value.

        Raises:
            NotFound: it is not there.
            Invalid: it can be no key.
        """
        check_key(key)
        with self._database.read() as tx:
            row = _row(tx, shelf, key)
        if row is None or row["is_deleted"]:
            raise NotFound(f"There is no key {key!r}.")
        return _entry(row)

    def delete(self, shelf: Shelf, key: str, change: Change) -> int:
        """Remove a key and return the version that its removal has.

        Raises:
            NotFound: it is not there.
            Conflict: it has another version than expected; ``args[1]`` is it.
            Invalid: it can be no key.
        """
        check_key(key)
        with self._database.write() as tx:
            before = _row(tx, shelf, key)
            if before is None or before["is_deleted"]:
                raise NotFound(f"There is no key {key!r}.")
            _check_version(before, key, change.expected_version)
            return _put_row(tx, shelf, before, {"key": key, "value": None}, change)

    def page(self, shelf: Shelf, prefix: str, *, limit: int, after: str | None) -> Page[Entry]:
        """List keys that begin so, in the order of their characters, without values; ``after`` is the last one seen.

        Raises:
            Invalid: nothing can begin so, or ``after`` can be no key.
        """
        query = _BEGIN if after is None else _LIST
        if after is not None:
            check_key(after)
        with self._database.read() as tx:
            wanted = {**_named(shelf), **({} if after is None else {"after_key": after})}
            listed = [Entry(**row) for row in tx.execute(_beginning(query, prefix).limit(limit + 1), wanted).mappings()]
        items = tuple(listed[:limit])
        return Page(items, items[-1].key if len(listed) > limit else None)

    def changes(self, shelf: Shelf, prefix: str, *, since: int, limit: int) -> Changes:
        """Keys that begin so and were changed after a revision of the shelf, those deleted among them.

        Each key comes once, as it is now; so the changes since 0, where deletions are left out, are what there is.

        Raises:
            Invalid: nothing can begin so.
        """
        query = _beginning(_CHANGES if since else _CHANGES.where(_LIVE), prefix).limit(limit + 1)
        with self._database.read() as tx:
            entries = [_entry(row) for row in tx.execute(query, {**_named(shelf), "since": since}).mappings()]
            revision: int = tx.execute(_REVISION, _named(shelf)).scalar_one()
        if len(entries) <= limit:
            return Changes(tuple(entries), revision, has_more=False)
        return Changes(tuple(entries[:limit]), entries[limit - 1].revision, has_more=True)

    def expire(self, *, before_ms: int, limit: int = 500) -> int:
        """Forget some deletions that are older; return how many. Call it until that is 0.

        The latest change of a shelf stays whatever its age: the count of revisions goes on from it.
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
        with self._database.write() as tx:
            removed = 0
            for *place, version in old:  # one that was written again meanwhile has another version
                same_row = and_(*(column == value for column, value in zip(key, place, strict=True)))
                removed += tx.execute(delete(rows).where(same_row, rows.c.version == version)).rowcount
        return removed


def check_key(key: str) -> None:
    """Return if this can be a key.

    Raises:
        Invalid: it is empty, too long, or holds what no store and wire can carry.
    """
    if not 1 <= len(key) <= KEY_CHARS:
        raise _flaw("/key", f"a key has 1 to {KEY_CHARS} characters")
    if not is_plain(key):
        raise _flaw("/key", "a key holds no NUL and no lone surrogate")


def is_plain(text: str) -> bool:
    """False for what no key can hold; SQLite takes text with NUL for shorter than it is in some places."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def after_prefix(prefix: str) -> str | None:
    """The first text behind all that begin so, in the order of code points; None if there is none.

    A range of keys knows no wildcards and no case, as LIKE does.
    """
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at])
        if code < 0x10FFFF:
            return prefix[:at] + chr(0xE000 if code == 0xD7FF else code + 1)  # there are no surrogates in between
    return None


def _beginning(query: Select[Any], prefix: str) -> Select[Any]:
    if not is_plain(prefix) or len(prefix) > KEY_CHARS:
        raise _flaw("/prefix", f"a prefix has at most {KEY_CHARS} characters, no NUL and no lone surrogate")
    end = after_prefix(prefix)
    query = query.where(rows.c.key >= prefix) if prefix else query
    return query if end is None else query.where(rows.c.key < end)


def _named(shelf: Shelf) -> dict[str, str]:
    return {"our_workspace": shelf.workspace, "our_namespace": shelf.namespace, "our_owner": shelf.owner}


def _row(tx: Connection, shelf: Shelf, key: str) -> Any | None:
    return tx.execute(_ROW, {**_named(shelf), "our_key": key}).mappings().first()


def _put_row(tx: Connection, shelf: Shelf, before: Any | None, new: Json, change: Change) -> int:
    version: int = 1 + (0 if before is None else before["version"])
    row = {
        "workspace": shelf.workspace,
        "namespace": shelf.namespace,
        "owner": shelf.owner,
        **new,
        "is_deleted": new["value"] is None,
        "version": version,
        "revision": 1 + tx.execute(_REVISION, _named(shelf)).scalar_one(),
        "updated_by": change.by,
        "updated_ms": change.now_ms,
    }
    tx.execute(_PUT, row)
    return version


def _make_room(tx: Connection, shelf: Shelf, before: Any | None) -> None:
    """Refuse one key too many; forget the oldest deletions where too many are remembered."""
    count = tx.execute(_COUNT, _named(shelf)).scalar_one()  # of an index alone, so cheap
    if count >= MOST_KEYS and tx.execute(_LIVE_COUNT, _named(shelf)).scalar_one() >= MOST_KEYS:
        raise _flaw("/key", f"there are {MOST_KEYS:,} keys; delete some")
    if before is None and count >= 2 * MOST_KEYS:
        tx.execute(_TRIM, {**_named(shelf), "most": TRIMMED})


def _check_value(value: object) -> None:
    try:
        size_bytes = len(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise _flaw("/value", "must be JSON, without NaN and lone surrogates") from error
    if size_bytes > VALUE_BYTES:
        raise _flaw("/value", f"has {size_bytes:,} bytes as JSON, {VALUE_BYTES:,} may be kept")


def _check_version(before: Any | None, key: str, expected: int | None) -> None:
    version = 0 if before is None or before["is_deleted"] else before["version"]
    if expected is not None and expected != version:
        raise Conflict(f"{key!r} has version {version}, not {expected}.", version)


def _flaw(pointer: str, detail: str) -> Invalid:
    return Invalid(f"{pointer[1:]}: {detail}", (Flaw(pointer, detail),))


def _entry(row: Any) -> Entry:
    # In a list, for SQLite would keep a bare number of many digits as a float.
    (value,) = row["value"] or (None,)
    return Entry(**{name: row[name] for name in Entry.__slots__ if name != "value"}, value=value)
