"""What a database must be able to do for Loom, and the locks that its writers name."""

import logging
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from loom_worker.core.errors import BadSettings, Conflicted, Unavailable

if TYPE_CHECKING:  # `loom up` asks for keys without SQLAlchemy, which would stay in its memory
    from sqlalchemy import Connection

TELL_AGAIN_S = 60.0
"""A failure is logged no more often than this."""
BUSY_TIMEOUT_S = 10.0
"""How long a writer waits for another one."""

HAS_MOVED = "takes no writes: it moves, or has moved, to another one"
"""Said by the triggers of a database that is moved from (``move_ends``), and so to whoever writes to it."""
WHERE_TO = "`loom doctor` names it; set LOOM_DATABASE_URL to that"


@dataclass(frozen=True, slots=True)
class Lock:
    """Keeps other writers out of what one transaction reads and then changes.

    SQLite has one writer at a time and ignores it. On PostgreSQL it is taken before the first statement: a lock that is
    taken later does not renew what was read before.
    """

    kind: Literal["whole", "lane", "session", "turn", "named"]
    subject: str = ""
    workspace: str = ""

    @classmethod
    def lane(cls, lane: str) -> "Lock":
        """A session, by its internal key, with its turns, their calls and their memory."""
        return cls("lane", lane)

    @classmethod
    def session(cls, workspace: str, session_id: str) -> "Lock":
        """The same by its name, which may not exist yet."""
        return cls("session", session_id, workspace)

    @classmethod
    def turn(cls, turn_id: str) -> "Lock":
        """The session of a turn."""
        return cls("turn", turn_id)

    @classmethod
    def named(cls, *names: str) -> "Lock":
        """Something that no session owns; transactions of sessions do not wait for it."""
        return cls("named", "\x1f".join(names))


WHOLE = Lock("whole")
"""The whole database: every other writer waits. It is never wrong, and slow."""

FOLDING = Lock.named("folding")
"""What is made of the rows that turns only add: one process at a time."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a database, as clients and operators read it."""

    text: str
    """A clause with the database as its subject. It names no file, so clients may read it."""
    fix: str
    """What the operator can do."""
    slug: str | None = None
    """Slug of the problem that clients get."""
    is_temporary: bool = False
    """True if the database itself is sound: the fix, or waiting, is enough."""
    may_succeed: bool = False
    """True if the same transaction may succeed when it is tried once more."""


def unavailable(failure: Failure) -> Unavailable:
    """The error that callers meet."""
    kind = Conflicted if failure.may_succeed else Unavailable
    return kind(f"The database {failure.text}.", failure.slug)


class FailureLog:
    """Failures that an operator must mend, each told no more often than TELL_AGAIN_S: every request may meet one."""

    def __init__(self) -> None:
        self._told_s: dict[str, float] = {}

    def tell(self, log: logging.Logger, where: str, failure: Failure, cause: object = None) -> None:
        """Log it, unless that was done a moment ago.

        Args:
            cause: what the driver says; None: that may not be told.
        """
        now_s = time.monotonic()
        if now_s - self._told_s.get(failure.text, -TELL_AGAIN_S) >= TELL_AGAIN_S:
            self._told_s[failure.text] = now_s
            log.error("%s %s%s: %s", where, failure.text, "" if cause is None else f" ({cause})", failure.fix)


@dataclass(frozen=True, slots=True)
class DatabaseSize:
    """How much a database holds at one moment."""

    size_bytes: int
    wal_bytes: int | None
    """Bytes of its write-ahead log; None: not known, as of a server."""
    free_bytes: int | None
    """Bytes that hold nothing and are used again; None: not known."""
    can_shrink: bool
    """True if free space is given back, or used again, without an operator."""
    rows: dict[str, int]
    """By table, for the tables that there are."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A finished copy."""

    file: Path
    size_bytes: int
    turns: int


class BackUpElsewhere(BadSettings):
    """The database has programs of its own for this; the text says how they are called."""


class Engine(Protocol):
    """One database. Whatever it cannot do just now raises Unavailable, and nothing was written then."""

    name: str
    """As people call it: SQLite, PostgreSQL."""
    where: str
    """The file, or the address without its password."""
    files: tuple[Path, ...]
    """What it has on this host, the database itself first; no tool of a user may touch them."""

    def read(self) -> "AbstractContextManager[Connection]":
        """A snapshot of the database."""
        ...

    def write(self, *, durable: bool, lock: Lock) -> "AbstractContextManager[Connection]":
        """A transaction that commits at the end of the block.

        Args:
            durable: the commit is on disk before it returns. Others survive the death of processes, and reach the
                disk with the next durable one; a server, which may die before its clients, makes them durable, too.
            lock: what nobody else may write meanwhile.
        """
        ...

    def probe(self) -> None:
        """Return if turns can be read, and written as far as this process knows."""
        ...

    def close(self) -> None:
        """Give back all connections; the engine can be used again afterwards."""
        ...

    def version(self) -> str | None:
        """The version of its schema, None for an empty database or none at all; nothing is changed.

        Raises:
            BadSettings: it is not a database of Loom's, or cannot be opened.
        """
        ...

    def usable_from(self) -> str | None:
        """The oldest version whose code works on this database, as the code said that migrated it; None: not known."""
        ...

    def require_writable(self) -> None:
        """BadSettings if this user may not write to it; the text says what to do."""
        ...

    def migrate(self) -> None:
        """Bring its schema to this code's version, all or nothing."""
        ...

    def extend(self) -> bool:
        """Make what needs an extension, if the database has that; True if something was made."""
        ...

    def size(self) -> DatabaseSize | None:
        """Measure it; None if there is none yet."""
        ...

    def defects(self, *, is_full: bool) -> tuple[str, ...]:
        """Defects inside it; none for a sound one.

        Args:
            is_full: also compare every index with its table.
        """
        ...

    def back_up(self, target: Path, *, may_replace: bool) -> Backup:
        """Copy it to a file.

        Raises:
            BackUpElsewhere: its own programs do that; the text says how.
        """
        ...

    def shrink(self) -> tuple[int, int]:
        """Make it as small as it can be, while nobody uses it; return its bytes before and after.

        Raises:
            Unavailable: it is in use, or its disk is full.
        """
        ...

    def give_back(self) -> None:
        """Give some free space back to the disk."""
        ...

    def empty_log(self) -> bool:
        """Remove what was deleted from its log; False: somebody reads or writes just now, so try again."""
        ...


def run_migrations(engine: Any, version: str) -> None:
    """Run what is missing of ``store/migrations`` on a database, all or nothing.

    Args:
        engine: SQLAlchemy's; its connections begin transactions by themselves, or one that excludes other migrations
            has begun on each of them.
    """
    # Alembic costs a quarter of a second to import, so it is loaded only when there is something to do.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parents[1] / "migrations"))
    config.attributes["engine"] = engine
    command.upgrade(config, version)
