"""The server on which a world keeps its store, with a pooler before it, as processes that the keeper starts anew."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg

from tests.support import store_postgres
from tests.support.postgres import Postgres, find_program, postgres_folder
from tests.support.webhook_receiver import unused_port

SERVER, POOLER = "database", "pooler"
_POOLER_INI = """
[databases]
* = host=127.0.0.1 port={port} user=loom
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {pooler_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 24
max_client_conn = 1000
server_login_retry = 0.2
"""


class StoreServer:
    """PostgreSQL, and PgBouncer where it is installed."""

    def __init__(self) -> None:
        programs = postgres_folder()
        if programs is None:
            raise RuntimeError("PostgreSQL is not installed: apt install postgresql")
        self._server = Postgres(programs)
        self._server.prepare()
        self._pooler = find_program("pgbouncer", "/usr/sbin")
        self._pooler_port = unused_port()
        ini = self._server.folder / "pgbouncer.ini"
        ini.write_text(_POOLER_INI.format(port=self._server.port, pooler_port=self._pooler_port))
        ini.chmod(0o644)

    @property
    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Name and command line of each process."""
        yield SERVER, [*self._as_nobody, *self._server.command]
        if self._pooler is not None:
            yield POOLER, [*self._as_nobody, str(self._pooler), str(self._server.folder / "pgbouncer.ini")]

    @property
    def environ(self) -> Mapping[str, str]:
        """The settings of processes of Loom that keep their store there, past a pooler if there is one."""
        found = {"LOOM_DATABASE_URL": self.url}
        if self._pooler is not None:
            pooled = self.url.replace(f":{self._server.port}/", f":{self._pooler_port}/")
            found |= {"LOOM_DATABASE_URL": pooled, "LOOM_DATABASE_POOLER": "1"}
        return found

    @property
    def url(self) -> str:
        """The database itself, past no pooler."""
        return self._server.store_url

    def answers(self) -> bool:
        """True once all of it takes a statement."""
        try:
            with psycopg.connect(self.environ["LOOM_DATABASE_URL"], connect_timeout=2) as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except psycopg.OperationalError:
            return False

    def rows(self, query: str, *values: str) -> list[tuple[object, ...]]:
        """Rows of a query in the form of SQLite; none while the server is away."""
        try:
            return store_postgres.rows(self.url, query, *values)
        except psycopg.OperationalError:
            return []

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes a turn meanwhile, unless the server dies."""
        with ExitStack() as stack:
            with suppress(psycopg.OperationalError):
                connection = psycopg.connect(self.url, connect_timeout=2)
                stack.callback(connection.close)
                connection.execute("LOCK TABLE turns IN EXCLUSIVE MODE")
            yield

    def move_to(self, path: Path, environ: Mapping[str, str]) -> None:
        """Move all rows to a file of SQLite, which the checks can read."""
        command = [sys.executable, "-m", "loom_worker.cli.main", "move", "--to", f"sqlite:///{path}"]
        straight = {**environ, "LOOM_DATABASE_URL": self.url, "LOOM_HOME": str(path.parent.with_name("moving"))}
        done = subprocess.run(command, env=straight, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        """Remove its files, once its processes are gone."""
        self._server.close()

    @property
    def _as_nobody(self) -> tuple[str, ...]:
        if os.geteuid() != 0:
            return ()
        return ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
