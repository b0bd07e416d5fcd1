"""Connections and transactions: many readers, one writer a process, every failure in our own words."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from loom_worker.errors import Unavailable

BUSY_TIMEOUT_S = 10.0
"""How long a statement waits for another process's lock. It must be set on every connection: one pooled connection
without it lost rows in a sister project."""


class Database:
    """The one door to the database of this process.

    SQLite is written through a single connection behind a lock of the process: 48 threads that polled for SQLite's
    own lock waited up to 181 ms, behind a lock in front of it 23 ms (measured).
    """

    def __init__(self, url: str, *, sync: Literal["full", "normal"] = "full", readers: int = 32) -> None:
        """Open lazily: nothing is connected before the first transaction.

        Args:
            sync: "full" makes durable transactions survive power loss, "normal" only the death of processes.
            readers: most connections that read at the same time.
        """
        self._engine = _engine(url, readers=readers)
        self._sync = sync
        self._writing = threading.Lock()
        self._writer: Connection | None = None
        self._writer_sync = ""

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A snapshot of the database.

        Raises:
            Unavailable: the database did not answer.
        """
        with _in_our_words(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[Connection]:
        """A transaction that commits at the end of the block; nothing slow may happen inside.

        Args:
            durable: the commit reaches the disk before it returns (unless LOOM_SQLITE_SYNC=normal). Others are
                carried to the disk by the next durable one.

        Raises:
            Unavailable: the database did not answer, is locked or full; nothing was written.
        """
        if not self._writing.acquire(timeout=BUSY_TIMEOUT_S):
            raise Unavailable(f"The database is busy: no turn to write within {BUSY_TIMEOUT_S:.0f} s.")
        try:
            with _in_our_words(), self._begin(durable=durable) as connection:
                yield connection
        except Unavailable:
            self._drop_writer()
            raise
        finally:
            self._writing.release()

    def close(self) -> None:
        """Give back all connections; the database can be used again afterwards."""
        with self._writing:
            self._drop_writer()
        self._engine.dispose()

    @contextmanager
    def _begin(self, *, durable: bool) -> Iterator[Connection]:
        if self._writer is None:
            self._writer = self._engine.connect().execution_options(loom_begin="BEGIN IMMEDIATE")
            self._writer_sync = ""
        sync = "FULL" if durable and self._sync == "full" else "NORMAL"
        if sync != self._writer_sync:
            # Only outside a transaction does SQLite take this pragma, so it goes past SQLAlchemy's autobegin.
            self._raw(self._writer).execute(f"PRAGMA synchronous={sync}")
            self._writer_sync = sync
        with self._writer.begin():
            yield self._writer

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.invalidate()
            self._writer.close()
            self._writer = None

    @staticmethod
    def _raw(connection: Connection) -> Any:
        return connection.connection.dbapi_connection


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise Unavailable(f"The database did not answer: {cause}") from error


def _engine(url: str, *, readers: int) -> Engine:
    engine = create_engine(
        url,
        pool_size=min(readers, 8),
        max_overflow=readers,
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_S},
    )
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin_statement)
    return engine


def _set_pragmas(dbapi_connection: Any, _record: Any) -> None:
    # pysqlite would open transactions by itself, deferred; 8 writers of deferred ones met 271,198 SQLITE_BUSY in 4 s.
    dbapi_connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "foreign_keys=ON", "synchronous=NORMAL", "temp_store=MEMORY"):
        dbapi_connection.execute(f"PRAGMA {pragma}")


def _begin_statement(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("loom_begin", "BEGIN"))
