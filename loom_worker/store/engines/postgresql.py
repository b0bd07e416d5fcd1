"""PostgreSQL: a server that many hosts share, with as many writers as do not name the same lock."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from loom_worker.core.errors import BadSettings, Unavailable
from loom_worker.core.settings_tree import ServerSettings
from loom_worker.core.variables import without_password
from loom_worker.store import schema
from loom_worker.store.engines.engine import (
    BUSY_TIMEOUT_S,
    Backup,
    BackUpElsewhere,
    DatabaseSize,
    FailureLog,
    Lock,
    run_migrations,
    unavailable,
)
from loom_worker.store.engines.postgresql_server import (
    connect,
    connected,
    failure_of,
    psycopg,
    refused,
)

log = logging.getLogger(__name__)

OLDEST = 14
"""The oldest major version of PostgreSQL that is served: the scripts have functions in SQL with a RETURN."""

READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
MIGRATING = "SELECT pg_advisory_xact_lock(hashtextextended('loom migrations', 0))"
"""One process at a time: the others wait, and find nothing left to do."""
FOLDER = Path(__file__).parents[1] / "migrations/postgresql"
BASE_SCRIPTS, BASE_VERSION = ("tables.sql", "triggers.sql", "search.sql"), "0033"
"""How a new database is made, and what version it has then; SQLite came to it by the migrations before."""

VECTORS_SCRIPT = "vectors.sql"
_LACKS_VECTORS = "SELECT to_regtype('vector') IS NOT NULL AND to_regclass('message_embeddings') IS NULL"
BEGIN = "SELECT loom_begin(%s, %s, %s, true, %s)"
"""Takes the lock; see migrations/postgresql/triggers.sql."""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_SIZES = (  # before its first ANALYZE, a table is -1 rows to the planner; behind a crash the other figure is 0
    "SELECT pg_class.relname, greatest(n_live_tup, reltuples::bigint) FROM pg_class "
    "JOIN pg_stat_user_tables ON relid = oid WHERE schemaname = current_schema()"
)


class PostgresqlEngine:
    """The connections of this process to the server; see ``Engine``."""

    name = "PostgreSQL"
    files: tuple[Path, ...] = ()

    def __init__(
        self,
        url: str,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        server: ServerSettings,
    ) -> None:
        """Open lazily: nothing is connected before the first transaction.

        Args:
            busy_timeout_s: how long to wait for another writer, and for a free connection.
            server: how many transactions there may be at the same time.
        """
        self.where = without_password(url)
        self._url, self._busy_timeout_s = url, busy_timeout_s
        self._failures = FailureLog()
        self._pool = create_engine(
            "postgresql+psycopg://",
            creator=lambda: connect(url, prepares=not server.has_pooler),
            paramstyle="format",  # as prepared statements give their parameters
            isolation_level="AUTOCOMMIT",  # every BEGIN is ours: it carries the lock
            pool_size=server.pool,
            max_overflow=0,
            pool_timeout=busy_timeout_s,
            pool_use_lifo=True,
            pool_reset_on_return=None,
            use_native_hstore=False,
            hide_parameters=True,  # they hold what users wrote, and its errors are logged
            execution_options={"preserve_rowcount": True},  # also of an INSERT that does nothing on conflict
        )

    def read(self) -> AbstractContextManager[Connection]:
        return self._transaction((READ, ()))

    def write(self, *, durable: bool, lock: Lock) -> AbstractContextManager[Connection]:
        # Always durable: whoever goes on when the server has died counts on all that it had committed before.
        wait_ms = int(self._busy_timeout_s * 1000)
        return self._transaction(("BEGIN", ()), (BEGIN, (lock.kind, lock.workspace, lock.subject, wait_ms)))

    def probe(self) -> None:
        with self.read() as tx:
            tx.exec_driver_sql("SELECT 1 FROM turns LIMIT 1")

    def close(self) -> None:
        self._pool.dispose()

    def version(self) -> str | None:
        with connected(self._url) as connection:
            _require_version(connection)
            names = _tables(connection)
            if "loom_version" in names:
                row = connection.execute("SELECT version_num FROM loom_version").fetchone()
                return str(row[0]) if row else "unknown"
        if names:
            some = ", ".join(sorted(names)[:3])
            raise BadSettings(
                f"LOOM_DATABASE_URL: {self.where} holds other tables ({some}…) than Loom's; name another database"
            )
        return None

    def usable_from(self) -> str | None:
        with connected(self._url) as connection:
            row = connection.execute("SELECT obj_description('loom_version'::regclass)").fetchone()
        return None if row is None or row[0] is None else str(row[0])

    def require_writable(self) -> None:
        with connected(self._url) as connection:
            row = connection.execute("SELECT has_schema_privilege(current_schema(), 'CREATE')").fetchone()
        if row is None or not row[0]:
            raise BadSettings(
                f"LOOM_DATABASE_URL: this user may not make tables in {self.where}; "
                "GRANT it CREATE on the schema, or name the database's owner"
            )

    def migrate(self) -> None:
        """See ``Engine``; whoever comes second waits, and finds nothing left to do."""
        with self._translate_errors():
            with connected(self._url) as connection, connection.transaction():
                connection.execute(MIGRATING)
                if not _tables(connection):
                    _make(connection)
            _migrate(self._url)

    def extend(self) -> bool:
        with connected(self._url) as connection, connection.transaction():
            connection.execute(MIGRATING)
            row = connection.execute(_LACKS_VECTORS).fetchone()
            if is_missing := row == (True,):
                connection.execute((FOLDER / VECTORS_SCRIPT).read_bytes())
        return is_missing

    def size(self) -> DatabaseSize | None:
        with connected(self._url) as connection:
            if "loom_version" not in _tables(connection):
                return None
            size = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            rows = {name: rows for name, rows in connection.execute(_SIZES) if name in schema.metadata.tables}
        return DatabaseSize(0 if size is None else int(size[0]), None, None, can_shrink=True, rows=rows)

    def defects(self, *, is_full: bool) -> tuple[str, ...]:
        with connected(self._url) as connection:
            invalid = connection.execute(
                "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"
            ).fetchall()
        return tuple(f"index {name} is not valid; REINDEX INDEX {name}" for (name,) in invalid)

    def back_up(self, target: Path, *, may_replace: bool) -> Backup:
        raise BackUpElsewhere(
            f"{self.where} is backed up by PostgreSQL's own programs: `pg_dump --format=custom` for a copy, base "
            "backups and archived WAL for any moment in time (docs/operations.md, Backup and restore)"
        )

    def shrink(self) -> tuple[int, int]:
        raise BadSettings("PostgreSQL uses free space again by itself; `VACUUM FULL` makes its files smaller")

    def give_back(self) -> None:
        """Leave it to the server's autovacuum."""

    def empty_log(self) -> bool:
        """Leave it to the server, which recycles its log."""
        return True

    @contextmanager
    def _transaction(self, *begin: tuple[str, tuple[object, ...]]) -> Iterator[Connection]:
        """Run a transaction. Its statements are sent as they come, and waited for where somebody needs a result."""
        with self._translate_errors():
            tx, pool = self._pool.connect(), self._pool.pool
            raw: Any = tx.connection.dbapi_connection
            try:
                with raw.sending(*begin):
                    yield tx
                    ended = raw.execute("COMMIT")
                if ended.statusmessage != "COMMIT":  # an error of a statement was caught on the way
                    raise Unavailable("The database has undone a transaction that had failed; nothing was written.")
            except BaseException:
                self._undo(tx, raw)
                raise
            finally:
                if self._pool.pool is not pool:  # disposed of meanwhile: nobody closes what comes back to it
                    tx.invalidate()
                tx.close()

    def _undo(self, tx: Connection, raw: Any) -> None:
        """Roll back, and drop a connection on which something failed; SQLAlchemy may have dropped it already."""
        # The server skips what was sent behind a statement that fails, and with it statements that psycopg takes for
        # prepared from then on.
        is_sound = raw.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        with suppress(psycopg.Error):
            raw.execute("ROLLBACK")
        is_gone = raw.closed or raw.broken
        if not is_sound:
            tx.invalidate()
        if is_gone:
            # Statements past SQLAlchemy do not tell its pool that the server died, whose other connections died, too.
            self._pool.dispose()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except PoolTimeout as error:
            raise Unavailable(f"The database is busy: no free connection within {self._busy_timeout_s:g} s.") from error
        except (DBAPIError, psycopg.Error) as raised:
            cause = raised.orig if isinstance(raised, DBAPIError) else raised
            failure = failure_of(cause)
            if failure is None:
                raise refused(cause) from None
            if not failure.may_succeed:
                self._failures.tell(log, self.where, failure)
            raise unavailable(failure) from None


def _require_version(connection: "psycopg.Connection[Any]") -> None:
    if connection.info.server_version < OLDEST * 10_000:
        major = connection.info.server_version // 10_000
        raise BadSettings(f"LOOM_DATABASE_URL: the server is PostgreSQL {major}; Loom needs {OLDEST} or newer")
    if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
        raise BadSettings(f"LOOM_DATABASE_URL: the database has the encoding {encoding}; create one with UTF8")


def _tables(connection: "psycopg.Connection[Any]") -> frozenset[str]:
    return frozenset(str(row[0]) for row in connection.execute(_TABLES))


def _make(connection: "psycopg.Connection[Any]") -> None:
    for script in BASE_SCRIPTS:
        connection.execute((FOLDER / script).read_bytes())
    connection.execute("CREATE TABLE loom_version (version_num VARCHAR(32) PRIMARY KEY)")
    connection.execute("INSERT INTO loom_version VALUES (%s)", (BASE_VERSION,))


def _migrate(url: str) -> None:
    pool = create_engine("postgresql+psycopg://", creator=lambda: connect(url, autocommit=False))

    @event.listens_for(pool, "begin")
    def _begun(connection: Connection) -> None:
        connection.exec_driver_sql(MIGRATING)
        connection.exec_driver_sql(f"COMMENT ON TABLE loom_version IS '{schema.USABLE_FROM}'")

    run_migrations(pool, schema.VERSION)
    pool.dispose()
