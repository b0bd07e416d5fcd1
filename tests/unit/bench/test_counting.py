import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench import counts, wal
from bench.counting import counted_connect, entry
from bench.counts import Counters
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "counts"


@pytest.fixture
def counters(folder: Path) -> Counters:
    return Counters(folder, "web")


@pytest.fixture
def connection(tmp_path: Path, counters: Counters) -> Iterator[Any]:
    connect = counted_connect(sqlite3.connect, counters)
    with closing(connect(str(tmp_path / "loom.db"), isolation_level=None)) as opened:
        opened.execute("PRAGMA journal_mode=WAL").fetchall()
        opened.execute("CREATE TABLE notes (text)")
        yield opened


def since(folder: Path, before: dict[str, int]) -> dict[str, int]:
    found = counts.read(folder)["web"]
    return {name: found[name] - before[name] for name in counts.COUNTS if found[name] != before[name]}


@pytest.mark.cases(
    ("statements", "expected"),
    [
        (
            ["BEGIN IMMEDIATE", "INSERT INTO notes VALUES (1)", "COMMIT"],
            {counts.STATEMENTS: 1, counts.WRITES: 1, counts.DURABLE: 1},
        ),
        (
            ["PRAGMA synchronous=NORMAL", "BEGIN IMMEDIATE", "INSERT INTO notes VALUES (1)", "COMMIT"],
            {counts.PRAGMAS: 1, counts.STATEMENTS: 1, counts.WRITES: 1},
        ),
        (["BEGIN", "SELECT 1", "SELECT 2", "ROLLBACK"], {counts.STATEMENTS: 2, counts.READS: 1}),
        (["BEGIN IMMEDIATE", "SELECT 1", "COMMIT"], {counts.STATEMENTS: 1, counts.EMPTY_WRITES: 1}),
        (
            ["BEGIN IMMEDIATE", "INSERT INTO notes VALUES (1)", "ROLLBACK"],
            {counts.STATEMENTS: 1, counts.EMPTY_WRITES: 1},
        ),
        (["SELECT 1"], {counts.STATEMENTS: 1, counts.READS: 1}),
        (["INSERT INTO notes VALUES (1)"], {counts.STATEMENTS: 1, counts.WRITES: 1, counts.DURABLE: 1}),
    ],
)
def test_statements_and_transactions_are_counted_as_sqlite_sees_them(
    connection: Any, folder: Path, statements: list[str], expected: dict[str, int]
) -> None:
    connection.execute("PRAGMA synchronous=FULL")
    before = counts.read(folder)["web"]
    for sql in statements:
        connection.execute(sql).fetchall()
    assert since(folder, before) == expected


def test_a_lock_that_another_connection_holds_counts_as_a_refused_try(
    connection: Any, tmp_path: Path, folder: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "loom.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        connection.execute("PRAGMA busy_timeout=0")
        before = counts.read(folder)["web"]
        with pytest.raises(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
    assert since(folder, before) == {counts.REFUSED: 1}


def test_what_goes_through_looms_own_database_is_counted(
    tmp_path: Path, counters: Counters, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", counted_connect(sqlite3.connect, counters))
    with closing(Database(f"sqlite:///{tmp_path}/loom.db", sync="full")) as database:
        with database.write(durable=True, lock=WHOLE) as tx:
            tx.exec_driver_sql("CREATE TABLE notes (text)")
            tx.exec_driver_sql("INSERT INTO notes VALUES (1)")
        before = counts.read(folder)["web"]
        with database.write(lock=WHOLE) as tx:
            tx.exec_driver_sql("INSERT INTO notes VALUES (2)")
        with database.read() as tx:
            tx.exec_driver_sql("SELECT * FROM notes").all()
    found = since(folder, before)
    assert (found[counts.STATEMENTS], found[counts.WRITES], found[counts.READS]) == (2, 1, 1)
    assert counts.DURABLE not in found
    assert before[counts.DURABLE] == 1


def test_processes_of_a_kind_are_summed_and_shown_in_a_table(folder: Path) -> None:
    for kind, more in (("web", 1), ("turn workers", 2)):
        Counters(folder, kind).add(counts.READS, more)
    (folder / "web.1.counts").write_bytes((5).to_bytes(8, "little") * len(counts.COUNTS))
    found = counts.read(folder)
    assert (found["web"][counts.READS], found["turn workers"][counts.READS]) == (6, 2)
    assert f"| {counts.READS} | 2 | 6 |" in counts.table(found).splitlines()


def test_the_log_tells_pages_transactions_and_growth(connection: Any, tmp_path: Path) -> None:
    file = tmp_path / "loom.db-wal"
    before = wal.read(file)
    for n in range(3):
        connection.execute("INSERT INTO notes VALUES (?)", ("x" * 3000 + str(n),))
    written = wal.read(file).since(before)
    assert written.commits == 3
    assert written.frames >= 3 + written.database_pages
    assert written.written_bytes == written.frames * (24 + written.page_bytes)
    assert written.database_pages >= 2


def test_a_log_that_began_anew_is_refused(connection: Any, tmp_path: Path) -> None:
    file = tmp_path / "loom.db-wal"
    connection.execute("INSERT INTO notes VALUES (1)")
    before = wal.read(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute("INSERT INTO notes VALUES (2)")
    with pytest.raises(wal.LogRestarted):
        wal.read(file).since(before)


@pytest.mark.heavy
def test_a_command_of_loom_counts_in_a_process_of_its_own(tmp_path: Path, folder: Path) -> None:
    environ = {**os.environ, "LOOM_HOME": str(tmp_path / "home"), "LOOM_PROVIDER": "scripted"}
    for command in (["prepare"], ["usage", "--help"]):
        subprocess.run([*entry(folder), *command], env=environ, check=True, capture_output=True, timeout=60)
    assert counts.read(folder)["other"][counts.OPENED] > 0
    assert counts.read(folder)["other"][counts.STATEMENTS] > 0
