from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store.file import into_wal


def opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


def test_a_file_that_another_holds_becomes_a_wal_one_once_it_is_let_go(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "a.db")) as holder, closing(opened(tmp_path / "a.db")) as waiter:
        holder.execute("CREATE TABLE t (x)")
        holder.execute("BEGIN EXCLUSIVE")
        thread = Thread(target=into_wal, args=(waiter,))
        thread.start()
        holder.execute("COMMIT")
        thread.join(timeout=10)
        assert waiter.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_file_that_is_never_let_go_is_told_as_locked(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "a.db")) as holder, closing(opened(tmp_path / "a.db")) as waiter:
        holder.execute("CREATE TABLE t (x)")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            into_wal(waiter, patience_s=0.05)
