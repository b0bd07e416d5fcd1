"""The one door to the database of this process, whichever engine it has."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, Self

from sqlalchemy import Connection

from loom_worker.core import metrics
from loom_worker.core.settings_tree import ServerSettings, Settings
from loom_worker.core.variables import is_server
from loom_worker.store.engines.engine import BUSY_TIMEOUT_S, Engine, Lock

NO_SERVER = ServerSettings()


class Database:
    """Transactions of this process."""

    def __init__(
        self,
        url: str,
        *,
        sync: Literal["full", "normal"] = "full",
        readers: int = 32,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        server: ServerSettings = NO_SERVER,
        process: str = "",
    ) -> None:
        """Open lazily: nothing is connected before the first transaction.

        Args:
            sync: "full" makes durable transactions on a file survive power loss, "normal" only the death of processes.
            readers: most transactions that read a file at the same time.
            busy_timeout_s: how long to wait for another writer.
            server: how a server is connected to; a file needs none of it.
            process: the name by which others see whether this process lives; empty: it has none.
        """
        self.process = process
        self.engine = engine_of(url, sync=sync, readers=readers, busy_timeout_s=busy_timeout_s, server=server)
        self._syncs = ("full", "full") if is_server(url) else ("normal", sync)

    @classmethod
    def of(cls, settings: Settings, *, readers: int = 32, process: str = "") -> Self:
        """The database that the settings name, as they say."""
        return cls(
            settings.database_url,
            sync=settings.sqlite_sync,
            readers=readers,
            server=settings.server,
            process=process,
        )

    def read(self) -> AbstractContextManager[Connection]:
        """A snapshot of the database.

        Raises:
            Unavailable: the database did not answer.
        """
        return self.engine.read()

    @contextmanager
    def write(self, *, lock: Lock, durable: bool = False, is_timed: bool = True) -> Iterator[Connection]:
        """A transaction that commits at the end of the block; nothing slow may happen inside.

        Args:
            lock: what nobody else may write meanwhile: all that is read here to decide what is written.
            durable: the commit reaches the disk before it returns, in a file unless LOOM_SQLITE_SYNC=normal. Others
                are carried to the disk by the next durable one; a server keeps them at once, too.
            is_timed: False leaves it out of the metrics. The transaction that stores them would otherwise give reason
                for the next one, every second, in processes that do nothing.

        Raises:
            Unavailable: the database did not answer, is busy, full or damaged; nothing was written.
        """
        asked_s = time.perf_counter()
        with self.engine.write(durable=durable, lock=lock) as tx:
            begun_s = time.perf_counter()
            yield tx
            done_s = time.perf_counter()
        if is_timed:
            metrics.WRITE_WAITS.observe(begun_s - asked_s)
            metrics.COMMITS.observe(time.perf_counter() - done_s, self._syncs[durable])

    def probe(self) -> None:
        """Return if turns can be read, and written as far as this process knows.

        Raises:
            Unavailable: they cannot, or damage was met before.
        """
        self.engine.probe()

    def close(self) -> None:
        """Give back all connections; the database can be used again afterwards."""
        self.engine.close()


def engine_of(
    url: str,
    *,
    sync: Literal["full", "normal"] = "full",
    readers: int = 32,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    server: ServerSettings = NO_SERVER,
) -> Engine:
    """The engine behind LOOM_DATABASE_URL; its driver is loaded here, and nothing is connected.

    Raises:
        BadSettings: the driver is not installed.
    """
    if is_server(url):
        from loom_worker.store.engines.postgresql import PostgresqlEngine

        return PostgresqlEngine(url, busy_timeout_s=busy_timeout_s, server=server)
    from loom_worker.store.engines.sqlite import SqliteEngine

    return SqliteEngine(url, sync=sync, readers=readers, busy_timeout_s=busy_timeout_s)
