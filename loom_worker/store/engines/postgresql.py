"""PostgreSQL: a server that many hosts share, with as many writers as do not name the same lock."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg import sql
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from loom_worker.core.errors import BadSettings, Unavailable
from loom_worker.core.settings_tree import ServerSettings
from loom_worker.store import schema
from loom_worker.store.engines.engine import BUSY_TIMEOUT_S, Backup, BackUpElsewhere, Lock, Sizes, run_migrations
from loom_worker.store.engines.postgresql_server import (
    ServerFailure,
    connect,
    connected,
    failure_of,
    shown,
    unavailable,
)

log = logging.getLogger(__name__)

OLDEST = 13
"""The oldest major version of PostgreSQL that is served: https://www.postgresql.org/support/versioning/."""

TELL_AGAIN_S = 60.0
"""A failure that an operator must mend is logged no more often than this."""

READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
MIGRATING = "SELECT pg_advisory_xact_lock(hashtextextended('loom migrations', 0))"
"""One process at a time: the others wait, and find nothing left to do."""
FOLDER = Path(__file__).parents[1] / "migrations/postgresql"
BASE_SCRIPTS, BASE_VERSION = ("tables.sql", "triggers.sql"), "0032"
"""How a new database is made, and what version it has then; SQLite came to it by the migrations before."""

_LOCK = sql.SQL("BEGIN; SELECT loom_begin({kind}, {workspace}, {subject}, {is_durable}, {wait_ms})")
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_SIZES = (
    "SELECT relname, reltuples::bigint FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
)


class PostgresqlEngine:
    """The connections of this process to the server; see ``Engine``."""

    name = "PostgreSQL"
    files: tuple[Path, ...] = ()

    def __init__(
        self,
        url: str,
        *,
        sync: Literal["full", "normal"] = "full",
        readers: int = 32,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        server: ServerSettings,
    ) -> None:
        """Open lazily: nothing is connected before the first transaction.

        Args:
            sync: "full" makes durable transactions wait for the server's disk (and for its synchronous standby).
            readers: most transactions at the same time, which read or write.
            busy_timeout_s: how long to wait for another writer, and for a free connection.
            server: may allow fewer connections than that.
        """
        self.where = shown(url)
        self._url, self._sync, self._busy_timeout_s = url, sync, busy_timeout_s
        self._told_s: dict[str, float] = {}
        self._pool = create_engine(
            "postgresql+psycopg://",
            creator=lambda: connect(url, prepares=not server.has_pooler),
            paramstyle="format",  # as prepared statements give their parameters
            isolation_level="AUTOCOMMIT",  # every BEGIN is ours: it carries the lock
            pool_size=server.pool or readers,
            max_overflow=0,
            pool_timeout=busy_timeout_s,
            pool_use_lifo=True,
            pool_reset_on_return=None,
            use_native_hstore=False,
            hide_parameters=True,  # they hold what users wrote, and its errors are logged
            execution_options={"preserve_rowcount": True},  # also of an INSERT that does nothing on conflict
        )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._transaction(lambda _: READ) as tx:
            yield tx

    @contextmanager
    def write(self, *, durable: bool, lock: Lock) -> Iterator[Connection]:
        is_durable = durable and self._sync == "full"

        def begin(raw: "psycopg.Connection[Any]") -> Any:
            wait_ms = int(self._busy_timeout_s * 1000)
            return _LOCK.format(
                kind=lock.kind, workspace=lock.workspace, subject=lock.subject, is_durable=is_durable, wait_ms=wait_ms
            ).as_string(raw)

        with self._transaction(begin) as tx:
            yield tx

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
                    for script in BASE_SCRIPTS:
                        connection.execute((FOLDER / script).read_bytes())
                    connection.execute("CREATE TABLE loom_version (version_num VARCHAR(32) PRIMARY KEY)")
                    connection.execute("INSERT INTO loom_version VALUES (%s)", (BASE_VERSION,))
            _migrate(self._url)

    def size(self) -> Sizes | None:
        with connected(self._url) as connection:
            if "loom_version" not in _tables(connection):
                return None
            size = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            rows = {name: max(0, rows) for name, rows in connection.execute(_SIZES) if name in schema.metadata.tables}
        return Sizes(0 if size is None else int(size[0]), None, None, can_shrink=True, rows=rows)

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
    def _transaction(self, begin: Any) -> Iterator[Connection]:
        with self._translate_errors():
            tx = self._pool.connect()
            try:
                raw: Any = tx.connection.dbapi_connection
                raw.execute(begin(raw))
                yield tx
                raw.execute("COMMIT")
            except BaseException as error:
                self._undo(tx, error)
                raise
            finally:
                tx.close()

    def _undo(self, tx: Connection, error: BaseException) -> None:
        """Roll back, or drop a connection on which that cannot be."""
        raw: Any = tx.connection.dbapi_connection
        with suppress(psycopg.Error):
            raw.execute("ROLLBACK")
        if raw.closed or raw.broken:
            tx.invalidate()
            # Statements past SQLAlchemy do not tell its pool that the server died, whose other connections died, too.
            self._pool.dispose()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except PoolTimeout as error:
            raise Unavailable(f"The database is busy: no free connection within {self._busy_timeout_s:g} s.") from error
        except (DBAPIError, psycopg.Error) as error:
            failure = failure_of(error.orig if isinstance(error, DBAPIError) else error)
            if failure is None:
                raise  # a bug, or a constraint that the caller knows of
            self._tell(failure)
            raise unavailable(failure) from error

    def _tell(self, failure: ServerFailure) -> None:
        now_s = time.monotonic()
        if not failure.may_succeed and now_s - self._told_s.get(failure.text, -TELL_AGAIN_S) >= TELL_AGAIN_S:
            self._told_s[failure.text] = now_s
            log.error("%s %s: %s", self.where, failure.text, failure.fix)


def _require_version(connection: "psycopg.Connection[Any]") -> None:
    if connection.info.server_version < OLDEST * 10_000:
        major = connection.info.server_version // 10_000
        raise BadSettings(f"LOOM_DATABASE_URL: the server is PostgreSQL {major}; Loom needs {OLDEST} or newer")
    if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
        raise BadSettings(f"LOOM_DATABASE_URL: the database has the encoding {encoding}; create one with UTF8")


def _tables(connection: "psycopg.Connection[Any]") -> frozenset[str]:
    return frozenset(str(row[0]) for row in connection.execute(_TABLES))


def _migrate(url: str) -> None:
    pool = create_engine("postgresql+psycopg://", creator=lambda: connect(url, autocommit=False))

    @event.listens_for(pool, "begin")
    def _begun(connection: Connection) -> None:
        connection.exec_driver_sql(MIGRATING)
        connection.exec_driver_sql(f"COMMENT ON TABLE loom_version IS '{schema.USABLE_FROM}'")

    run_migrations(pool, schema.VERSION)
    pool.dispose()
