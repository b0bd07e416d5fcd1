"""Connections and transactions: many readers, one writer a process, every failure in our own words."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from loom_worker.core import metrics
from loom_worker.core.errors import Unavailable
from loom_worker.core.sqlite_driver import codes, sqlite3
from loom_worker.core.variables import database_path
from loom_worker.store.file import DAMAGED, FOREIGN, Failure, failure_of, into_wal

log = logging.getLogger(__name__)

BUSY_TIMEOUT_S = 10.0
"""How long a statement waits for another process's lock. It is set on every connection: one pooled connection without
it lost rows in a sister project. The writer waits as long in steps of its own, before its transaction begins."""

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

EMPTYING_MS = 100
"""How long readers are waited for when the log is emptied; nobody can write meanwhile."""

TELL_AGAIN_S = 60.0
"""A failure that an operator must mend is logged no more often than this: with a full disk every request meets it."""


class Database:
    """The one door to the database of this process.

    SQLite is written through a single connection behind a lock of the process: 48 threads that polled for SQLite's
    own lock waited up to 181 ms, behind a lock in front of it 23 ms (measured).
    """

    def __init__(
        self,
        url: str,
        *,
        sync: Literal["full", "normal"] = "full",
        readers: int = 32,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        process: str = "",
    ) -> None:
        """Open lazily: nothing is connected before the first transaction.

        Args:
            sync: "full" makes durable transactions survive power loss, "normal" only the death of processes.
            readers: most connections that read at the same time.
            busy_timeout_s: how long to wait for another thread that writes, and then for another process.
            process: the name by which others see whether this process lives; empty: it has none.
        """
        self.process = process
        self._engine = _engine(url, readers=readers, busy_timeout_s=busy_timeout_s)
        self._file = database_path(url)
        self._damage: Failure | None = None
        self._told_s: dict[str, float] = {}
        self._busy_timeout_s = busy_timeout_s
        self._sync = sync
        self._writing = threading.Lock()
        self._readers: list[Connection] = []
        """Kept open, the one that was used last at the end; see KEPT_READERS."""
        self._writer: Connection | None = None
        self._writer_sync = ""

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A snapshot of the database.

        Raises:
            Unavailable: the database did not answer.
        """
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
    def write(self, *, durable: bool = False, is_timed: bool = True) -> Iterator[Connection]:
        """A transaction that commits at the end of the block; nothing slow may happen inside.

        Args:
            durable: the commit reaches the disk before it returns (unless LOOM_SQLITE_SYNC=normal). Others are
                carried to the disk by the next durable one.
            is_timed: False leaves it out of the metrics. The transaction that stores them would otherwise give reason
                for the next one, every second, in processes that do nothing.

        Raises:
            Unavailable: the database did not answer, is locked, full or damaged; nothing was written. Once damage
                was met, this process writes no more: what it wrote would be lost with the file.
        """
        asked_s = time.perf_counter()
        if not self._writing.acquire(timeout=self._busy_timeout_s):
            raise Unavailable(f"The database is busy: no turn to write within {self._busy_timeout_s:g} s.")
        try:
            if self._damage is not None:
                raise _unavailable(self._damage)
            with self._translate_errors(), self._begin(durable=durable) as connection:
                begun_s = time.perf_counter()
                yield connection
                done_s = time.perf_counter()
            if is_timed:
                metrics.WRITE_WAITS.observe(begun_s - asked_s)
                metrics.COMMITS.observe(time.perf_counter() - done_s, self._writer_sync.lower())
        except Unavailable:
            self._drop_writer()
            raise
        finally:
            self._writing.release()

    def probe(self) -> None:
        """Return if turns can be read, and written as far as this process knows.

        Raises:
            Unavailable: they cannot, or damage was met before.
        """
        if self._damage is not None:
            raise _unavailable(self._damage)
        with self.read() as tx:
            tx.exec_driver_sql("SELECT 1 FROM turns LIMIT 1")

    def empty_log(self) -> bool:
        """Cut the write-ahead log to nothing, in which deleted rows stand; False: somebody reads or writes just now."""
        with self._translate_errors(), self._engine.connect() as connection:
            raw = self._raw(connection)
            raw.execute(f"PRAGMA busy_timeout={EMPTYING_MS}")
            is_busy = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            connection.invalidate()
        return not is_busy

    def close(self) -> None:
        """Give back all connections; the database can be used again afterwards."""
        with self._writing:
            self._drop_writer()
        while self._readers:
            self._readers.pop().close()
        self._engine.dispose()

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
                raise _unavailable(failure) from error
            if isinstance(cause, sqlite3.OperationalError | sqlite3.InterfaceError | PoolTimeout):
                raise Unavailable(f"The database did not answer: {cause}") from error
            raise  # a bug, or a constraint that the caller knows of

    def _tell(self, failure: Failure, cause: BaseException | None) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s.get(failure.text, -TELL_AGAIN_S) >= TELL_AGAIN_S:
            self._told_s[failure.text] = now_s
            log.error("%s %s (%s): %s", self._file, failure.text, cause, failure.fix)
        if failure in (DAMAGED, FOREIGN) and self._damage is None:
            self._damage = failure
            log.error("%s: this process writes no more to it; start it again once the file is mended", self._file)

    @staticmethod
    def _raw(connection: Connection) -> Any:
        return connection.connection.dbapi_connection


def _unavailable(failure: Failure) -> Unavailable:
    return Unavailable(f"The database {failure.text}.", failure.slug)


def _engine(url: str, *, readers: int, busy_timeout_s: float) -> Engine:
    engine = create_engine(
        url,
        module=sqlite3,
        pool_size=KEPT_READERS + 1,  # and the writer
        max_overflow=readers,
        hide_parameters=True,  # they hold what users wrote, and its errors are logged
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
