"""SQLite: a file of this host, with many readers and one writer a process, every failure in our own words."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, create_engine, event
from sqlalchemy import Engine as Pool
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from loom_worker.core.errors import BadFile, BadSettings, Unavailable
from loom_worker.core.sqlite_driver import codes, sqlite3
from loom_worker.core.values.json import json_text
from loom_worker.store import schema
from loom_worker.store.engines import sqlite_backup, sqlite_space
from loom_worker.store.engines.engine import (
    BUSY_TIMEOUT_S,
    Backup,
    DatabaseSize,
    Failure,
    FailureLog,
    Lock,
    run_migrations,
    unavailable,
)
from loom_worker.store.engines.sqlite_file import (
    BESIDE,
    DAMAGED,
    FOREIGN,
    database_path,
    failure_of,
    file_defects,
    into_wal,
    reading,
)

log = logging.getLogger(__name__)

WAL_BYTES = 16 * 1024 * 1024
"""The write-ahead log is cut to this size when it starts anew. It is 4 MB as a rule; a reader that stays for long, or a
large transaction, makes it grow, and without a limit it would keep its largest size for good."""

PRAGMAS = (
    "foreign_keys=ON",
    "synchronous=NORMAL",
    "temp_store=MEMORY",
    f"journal_size_limit={WAL_BYTES}",
    # What is deleted is overwritten. Only some builds of SQLite do so by default.
    "secure_delete=ON",
)
"""Set on every connection."""

KEPT_READERS = 8
"""Connections that are kept for the next snapshot. To take one from SQLAlchemy's pool and to give it back takes longer
than most snapshots."""

LOCK_STEP_S = 0.0003
"""Pause between two tries for the lock that another process holds."""

MIGRATION_WAIT_S = 60
"""Processes that start together wait for the one that migrates; on a busy machine it takes a while."""

EMPTYING_MS = 100
"""How long readers are waited for when the log is emptied; nobody can write meanwhile."""


class SqliteEngine:
    """The one door to the file for this process; see ``Engine``.

    SQLite is written through a single connection behind a lock of the process: 48 threads that polled for SQLite's
    own lock waited up to 181 ms, behind a lock in front of it 23 ms (measured).
    """

    name = "SQLite"

    def __init__(
        self,
        url: str,
        *,
        sync: Literal["full", "normal"] = "full",
        readers: int = 32,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> None:
        """Open lazily: nothing is connected before the first transaction.

        Args:
            sync: "full" makes durable transactions survive power loss, "normal" only the death of processes.
            readers: most connections that read at the same time.
            busy_timeout_s: how long to wait for another thread that writes, and then for another process. It is set
                on every connection: one pooled connection without it lost rows in a sister project.
        """
        self._file = database_path(url)
        self.where = str(self._file)
        self.files = (self._file, *(Path(f"{self._file}{end}") for end in BESIDE))
        self._url, self._busy_timeout_s, self._sync = url, busy_timeout_s, sync
        self._engine = _engine(url, readers=readers, busy_timeout_s=busy_timeout_s)
        self._damage: Failure | None = None
        self._failures = FailureLog()
        self._writing = threading.Lock()
        self._readers: list[Connection] = []
        """Kept open, the one that was used last at the end; see KEPT_READERS."""
        self._writer: Connection | None = None
        self._writer_sync = ""

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._translate_errors():
            reader = self._reader()
            raw = self._raw(reader)
            try:
                raw.execute("BEGIN")
                yield reader
            except (DBAPIError, sqlite3.Error):
                reader.invalidate()
                raise
            finally:
                self._give_back(reader, raw)

    @contextmanager
    def write(self, *, durable: bool, lock: Lock) -> Iterator[Connection]:
        """See ``Engine``; the lock is needless here.

        Raises:
            Unavailable: the database did not answer, is locked, full or damaged; nothing was written. Once damage
                was met, this process writes no more: what it wrote would be lost with the file.
        """
        if not self._writing.acquire(timeout=self._busy_timeout_s):
            raise Unavailable(f"The database is busy: no turn to write within {self._busy_timeout_s:g} s.")
        try:
            if self._damage is not None:
                raise unavailable(self._damage)
            with self._translate_errors(), self._begin(durable=durable) as connection:
                yield connection
        except Unavailable:
            self._drop_writer()
            raise
        finally:
            self._writing.release()

    def probe(self) -> None:
        if self._damage is not None:
            raise unavailable(self._damage)
        with self.read() as tx:
            tx.exec_driver_sql("SELECT 1 FROM turns LIMIT 1")

    def empty_log(self) -> bool:
        """Cut the write-ahead log to nothing, in which deleted rows stand."""
        with self._translate_errors(), self._engine.connect() as connection:
            raw = self._raw(connection)
            raw.execute(f"PRAGMA busy_timeout={EMPTYING_MS}")
            is_busy = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            connection.invalidate()
        return not is_busy

    def close(self) -> None:
        with self._writing:
            self._drop_writer()
        while self._readers:
            self._readers.pop().close()
        self._engine.dispose()

    def version(self) -> str | None:
        try:
            return _version_in(self._file) if os.path.lexists(self._file) else None
        except BadFile as error:
            raise BadSettings(f"LOOM_DATABASE_URL: {error}") from error
        except OSError as error:
            raise BadSettings(f"LOOM_DATABASE_URL: {self._file}: {error.strerror}") from error

    def usable_from(self) -> str | None:
        with reading(self._file) as connection:
            number = connection.execute("PRAGMA user_version").fetchone()[0]
        return f"{number:04}" if number else None

    def require_writable(self) -> None:
        folder = self._file.parent
        if not folder.is_dir():
            raise BadSettings(f"LOOM_DATABASE_URL: there is no folder {folder}; make it, or name another one")
        for path in (folder, self._file):
            if path.exists() and not os.access(path, os.W_OK):
                raise BadSettings(
                    f"LOOM_DATABASE_URL: {path} may not be written by this user (uid {os.geteuid()}); "
                    "change its owner or mode, or name another file"
                )

    def migrate(self) -> None:
        try:
            migrate_file(self._url, schema.VERSION)
        except DBAPIError as error:
            failure = failure_of(error.orig, self._file)
            if failure is None:
                raise
            raise Unavailable(f"{self._file} {failure.text}; {failure.fix}", failure.slug) from error

    def extend(self) -> bool:
        """Extensions are loaded into connections, and keep nothing in the file."""
        return False

    def size(self) -> DatabaseSize | None:
        return sqlite_space.sizes(self._file) if self._file.exists() else None

    def defects(self, *, is_full: bool) -> tuple[str, ...]:
        return file_defects(self._file, is_full=is_full)

    def back_up(self, target: Path, *, may_replace: bool) -> Backup:
        return sqlite_backup.back_up(self._file, target, may_replace=may_replace)

    def shrink(self) -> tuple[int, int]:
        return sqlite_space.shrink(self._file)

    def give_back(self) -> None:
        sqlite_space.give_back(self)

    @contextmanager
    def _begin(self, *, durable: bool) -> Iterator[Connection]:
        if self._writer is None:
            self._writer = self._engine.connect()
            self._writer_sync = ""
            # It waits for the write lock by itself, and once it has that nobody else keeps it waiting.
            self._raw(self._writer).execute("PRAGMA busy_timeout=0")
        sync = "FULL" if durable and self._sync == "full" else "NORMAL"
        if sync != self._writer_sync:
            # Only outside a transaction does SQLite take this pragma, so it goes past SQLAlchemy's autobegin.
            self._raw(self._writer).execute(f"PRAGMA synchronous={sync}")
            self._writer_sync = sync
        raw = self._raw(self._writer)
        _begin_writing(raw, self._busy_timeout_s)
        try:
            yield self._writer
        except BaseException:
            _end(self._writer, raw, commits=False)
            raise
        _end(self._writer, raw, commits=True)

    def _reader(self) -> Connection:
        try:
            return self._readers.pop()
        except IndexError:
            return self._engine.connect()

    def _give_back(self, reader: Connection, raw: Any) -> None:
        if reader.invalidated or len(self._readers) >= KEPT_READERS:
            reader.close()
        else:
            _end(reader, raw, commits=False)
            self._readers.append(reader)

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.invalidate()
            self._writer.close()
            self._writer = None

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, sqlite3.Error, PoolTimeout) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            failure = failure_of(cause, self._file)
            if failure is not None:
                self._tell(failure, cause)
                raise unavailable(failure) from error
            if isinstance(cause, sqlite3.OperationalError | sqlite3.InterfaceError | PoolTimeout):
                raise Unavailable(f"The database did not answer: {cause}") from error
            raise  # a bug, or a constraint that the caller knows of

    def _tell(self, failure: Failure, cause: BaseException | None) -> None:
        self._failures.tell(log, self.where, failure, cause)
        if failure in (DAMAGED, FOREIGN) and self._damage is None:
            self._damage = failure
            log.error("%s: this process writes no more to it; start it again once the file is mended", self._file)

    @staticmethod
    def _raw(connection: Connection) -> Any:
        return connection.connection.dbapi_connection


def _engine(url: str, *, readers: int, busy_timeout_s: float) -> Pool:
    engine = create_engine(
        url,
        module=sqlite3,
        pool_size=KEPT_READERS + 1,  # and the writer
        max_overflow=readers,
        hide_parameters=True,  # they hold what users wrote, and its errors are logged
        json_serializer=json_text,
        connect_args={"check_same_thread": False, "timeout": busy_timeout_s},
    )
    event.listen(engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(dbapi_connection: Any, _record: Any) -> None:
    # We begin transactions ourselves. The driver's own are deferred; 8 writers of those met 271,198 SQLITE_BUSY in 4 s.
    dbapi_connection.isolation_level = None
    into_wal(dbapi_connection)
    for pragma in PRAGMAS:
        dbapi_connection.execute(f"PRAGMA {pragma}").fetchall()


def _begin_writing(raw: Any, busy_s: float) -> None:
    """Take SQLite's write lock, waiting for other processes in small steps.

    SQLite itself sleeps 1, 2, 5, 10… ms between its tries, while our transactions take half of one.
    """
    until_s = time.monotonic() + busy_s
    while not _has_begun(raw):
        if time.monotonic() > until_s:
            raw.execute("BEGIN IMMEDIATE")  # once more, to fail as SQLite fails
            return
        time.sleep(LOCK_STEP_S)


def _end(connection: Connection, raw: Any, *, commits: bool) -> None:
    """End a transaction; SQLAlchemy knows of it only if one of its statements ran in it."""
    ours: Any = connection if connection.in_transaction() else raw
    if commits:
        ours.commit()
    else:
        ours.rollback()


def _has_begun(raw: Any) -> bool:
    try:
        raw.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == codes.SQLITE_BUSY:
            return False
        raise
    return True


def _version_in(file: Path) -> str | None:
    with reading(file) as connection:
        names = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        if "loom_version" in names:
            row = connection.execute("SELECT version_num FROM loom_version").fetchone()
            return str(row[0]) if row else "unknown"
    if names:
        raise BadFile(f"{file} holds other tables ({', '.join(sorted(names)[:3])}…) than Loom's; name another file")
    return None


def migrate_file(url: str, version: str) -> None:
    """Bring a file to a version of the schema, which may be an older one than this code's."""
    engine = create_engine(url, module=sqlite3, connect_args={"timeout": MIGRATION_WAIT_S})

    @event.listens_for(engine, "connect")
    def _connected(dbapi_connection: Any, _record: Any) -> None:
        dbapi_connection.isolation_level = None
        if dbapi_connection.execute("PRAGMA page_count").fetchone()[0] == 0:
            # Only before the first page is there can a file be set to become smaller in steps; later it takes a VACUUM.
            dbapi_connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        into_wal(dbapi_connection, wait_s=MIGRATION_WAIT_S)

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        # All or nothing, and one at a time: of three processes that started together two failed half-way, and a
        # process that was killed in between left tables that no Loom would open.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        connection.exec_driver_sql(f"PRAGMA user_version={int(schema.USABLE_FROM)}")

    run_migrations(engine, version)
    engine.dispose()
