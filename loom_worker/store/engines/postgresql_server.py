"""A PostgreSQL server as its clients meet it: how it is reached, what can be wrong with it, and its keys.

Failures are known by their SQLSTATE alone: the driver's own text may hold the row that a statement was about.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self, cast

from loom_worker.core.errors import BadSettings, Unavailable
from loom_worker.core.text import storable
from loom_worker.core.values.json import json_text
from loom_worker.core.variables import without_password
from loom_worker.store.engines.engine import HAS_MOVED, WHERE_TO, Failure

try:
    import psycopg as psycopg  # the engine has it from here, where its absence is told
    from psycopg import DataError
    from psycopg.adapt import Loader
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.types.json import set_json_dumps
    from psycopg.types.string import StrDumper
except ImportError as missing:
    raise BadSettings(
        "LOOM_DATABASE_URL names a PostgreSQL server, and its driver is not installed: "
        "pip install 'psycopg[binary]>=3.2,<4' (the extra `postgresql` of Loom's package)"
    ) from missing

# It logs errors that come behind another one, with the row that a statement was about.
logging.getLogger("psycopg").setLevel(logging.CRITICAL)

CONNECT_S = 5
"""How long to wait for a connection; a host that is gone does not refuse it."""

_HAS_TABLE = "SELECT to_regclass('api_keys')"
_USABLE = "SELECT count(*) FROM api_keys WHERE revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > %s)"


FULL = Failure("has no room: the disk is full", "make room on the disk of its server", "storage-full")
GONE = Failure("does not answer", "start the server, or correct LOOM_DATABASE_URL")
BUSY = Failure("is busy: another writer has held it for too long", "look for long transactions in pg_stat_activity")
CROWDED = Failure("has no connection left", "raise max_connections, or lower LOOM_DATABASE_POOL")
READ_ONLY = Failure("takes no writes", "name its primary: target_session_attrs=read-write in LOOM_DATABASE_URL")
DENIED = Failure("refuses this user", "correct user, password and database in LOOM_DATABASE_URL, or grant the rights")
DAMAGED = Failure("is damaged", "look into the server's log, and restore a backup", "storage-damaged")
UNTRUSTED = Failure(
    "is not reached by TLS as its URL asks",
    "correct sslmode, sslrootcert, sslcert and sslkey in LOOM_DATABASE_URL, or the server's certificate",
)
NOT_MADE = Failure("lacks a table", "run `loom prepare`")
IN_THE_WAY = Failure("had another transaction in the way", "try again", may_succeed=True)
MOVED = Failure(HAS_MOVED, WHERE_TO)

_BY_STATE = {
    "LM001": MOVED,
    "53100": FULL,
    "53300": CROWDED,
    "55P03": BUSY,
    "25006": READ_ONLY,
    "42501": DENIED,
    "3D000": DENIED,
    "42P01": NOT_MADE,
    "42883": NOT_MADE,  # loom_begin, with which each transaction that writes begins
    "40001": IN_THE_WAY,
    "40P01": IN_THE_WAY,
    "XX001": DAMAGED,
    "XX002": DAMAGED,
}
_BY_CLASS = {"08": GONE, "57": GONE, "28": DENIED, "53": CROWDED, "58": DAMAGED}
_BY_TEXT = (
    ("certificate|private key|sslmode|SSL was required", UNTRUSTED),
    ("FATAL: .*(too many|connection slots)", CROWDED),
    ("FATAL:(?!.*database system).*(password|role|database|pg_hba)", DENIED),
)
"""Why a session did not begin: then libpq tells no SQLSTATE, and no row. A server of another language is GONE."""
_ONCE_MORE = frozenset(("turns_by_key", "workflow_runs_by_key", "sessions_workspace_id_key"))
"""Unique constraints that only a transaction of another process can bring into the way: what it wrote is found then."""


def failure_of(error: BaseException | None) -> Failure | None:
    """The failure behind an exception of psycopg; None if the statement is at fault, as with a typo."""
    if not isinstance(error, psycopg.Error):
        return None
    state = error.sqlstate or ""
    if state == "23505":
        return IN_THE_WAY if error.diag.constraint_name in _ONCE_MORE else None
    found = _BY_STATE.get(state) or _BY_CLASS.get(state[:2])
    if found or state or not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return found
    return next((failure for pattern, failure in _BY_TEXT if re.search(pattern, str(error))), GONE)


class StatementRefused(RuntimeError):
    """A statement that the server does not take: a bug of ours, or of somebody who writes SQL of their own."""


def refused(error: BaseException | None) -> StatementRefused:
    """What may be told of such a statement. The rest of the driver's text holds the row, and stays out of logs."""
    if not isinstance(error, psycopg.Error):
        return StatementRefused("the database refused a statement")
    state, diagnosis = error.sqlstate or type(error).__name__, error.diag
    # Class 22 is about values, and quotes them.
    text = "" if state.startswith("22") else diagnosis.message_primary or ""
    return StatementRefused(f"the database refused a statement ({state}): {text or diagnosis.constraint_name or ''}")


class _NumericLoader(Loader):
    """Sums as Python counts them: no column of ours is a decimal."""

    def load(self, data: Any) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text else int(text)


class _CleanStrDumper(StrDumper):
    """Text without NUL and lone surrogates, which models and tools may say and no text here can hold."""

    def dump(self, obj: str) -> Any:
        try:
            return super().dump(obj)
        except (DataError, UnicodeEncodeError):
            return super().dump(storable(obj))


class _Sent(psycopg.Cursor[Any]):
    """A statement that is sent; reading its rows, or how many it changed, waits for the server."""

    @property
    def rowcount(self) -> int:
        cast(ServerConnection, self.connection).wait_for_all()
        return super().rowcount


class _Done(psycopg.Cursor[Any]):
    """A statement that is waited for at once, as SQLAlchemy expects it."""

    def execute(self, *given: Any, **options: Any) -> Self:
        super().execute(*given, **options)
        cast(ServerConnection, self.connection).wait_for_all()
        return self

    def executemany(self, *given: Any, **options: Any) -> None:
        super().executemany(*given, **options)
        cast(ServerConnection, self.connection).wait_for_all()


class ServerConnection(psycopg.Connection[Any]):
    """A connection on which a transaction can send several statements before it waits: each wait is a round trip."""

    sent: psycopg.Pipeline

    @contextmanager
    def sending(self, *first: tuple[str, tuple[object, ...]]) -> Iterator[None]:
        """Until the end of the block, where all that was sent is waited for, ``execute`` does not wait.

        Args:
            first: statements to begin with, and their values.
        """
        with self.pipeline() as self.sent:
            for statement, values in first:
                self.execute(statement, values)
            yield

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        """Send a statement; who reads of its result waits for it."""
        return _Sent(self).execute(query, params, **options)

    def wait_for_all(self) -> None:
        """Wait for all that was sent; an error of any of it is raised here."""
        if self.pgconn.pipeline_status:
            self.sent.sync()


def connect(url: str, *, autocommit: bool = True, prepares: bool = False) -> "psycopg.Connection[Any]":
    """Connect; nothing begins a transaction but BEGIN.

    Args:
        prepares: statements that repeat are prepared in the session, which is faster, and wrong behind a pooler that
            gives each transaction another session.
    """
    made = ServerConnection.connect(
        url, autocommit=autocommit, connect_timeout=CONNECT_S, application_name="loom", cursor_factory=_Done
    )
    if not prepares:
        made.prepare_threshold = None
    made.adapters.register_loader("numeric", _NumericLoader)
    made.adapters.register_dumper(str, _CleanStrDumper)
    set_json_dumps(json_text, made)
    return made


@contextmanager
def connected(url: str) -> Iterator["psycopg.Connection[Any]"]:
    """A connection for a question of a command.

    Raises:
        BadSettings: the server refuses this user, or is not trusted.
        Unavailable: it does not answer.
    """
    try:
        with connect(url) as connection:
            yield connection
    except psycopg.Error as error:
        failure = failure_of(error)
        if failure is None:
            raise
        kind = BadSettings if failure in (DENIED, UNTRUSTED) else Unavailable
        why = "" if error.sqlstate else f" ({_reason(error)})"
        raise kind(f"LOOM_DATABASE_URL: {without_password(url)} {failure.text}{why}; {failure.fix}") from error


def check_url(url: str) -> None:
    """BadSettings for parameters that libpq does not know; its own text would hold the URL, with its password."""
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise BadSettings(
            "LOOM_DATABASE_URL: libpq cannot read it; is a parameter behind the ? misspelled, or a character of the "
            "password not percent-encoded?"
        ) from None


def usable_keys(url: str, *, now_ms: int) -> int:
    """Count the keys of all workspaces that are neither revoked nor expired; 0 where there are no tables yet.

    Raises:
        BadSettings, Unavailable: as ``connected``.
    """
    with connected(url) as connection:
        if _one(connection, _HAS_TABLE) is None:
            return 0
        return int(_one(connection, _USABLE, (now_ms,)))


def _one(connection: "psycopg.Connection[Any]", query: Any, values: tuple[object, ...] = ()) -> Any:
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]


def _reason(error: psycopg.Error) -> str:
    """The end of the first line of libpq's text about a session that did not begin."""
    return re.split(r"failed: |is bad: |FATAL: +", str(error).partition("\n")[0])[-1]
