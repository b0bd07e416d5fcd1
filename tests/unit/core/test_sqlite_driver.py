import importlib.util
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from loom_worker.core import sqlite_driver
from loom_worker.core.sqlite_driver import codes, sqlite3
from loom_worker.store.database import Database

ROOT = Path(__file__).parents[3]
HAS_WHEEL = importlib.util.find_spec("pysqlite3") is not None


@pytest.mark.skipif(not HAS_WHEEL, reason="pysqlite3 has no wheel for this platform")
def test_the_library_has_the_fix_of_the_wal_reset_corruption_where_there_is_a_wheel() -> None:
    assert sqlite_driver.is_sound()
    assert sqlite_driver.driver_name() == (
        "sqlite3" if codes.sqlite_version_info >= sqlite_driver.SOUND else "pysqlite3"
    )


def test_the_database_is_opened_with_the_library_that_was_decided_on(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'loom.db'}")
    try:
        with database.read() as tx:
            assert tx.exec_driver_sql("SELECT sqlite_version()").scalar() == sqlite3.sqlite_version
    finally:
        database.close()


def test_without_a_wheel_the_standard_library_serves_and_the_warning_names_a_way_out(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pysqlite3'] = None\n"
        "from loom_worker.core import sqlite_driver\n"
        "from loom_worker.store.database import Database\n"
        "database = Database(sys.argv[1])\n"
        "with database.read() as tx: print(tx.exec_driver_sql('SELECT sqlite_version()').scalar())\n"
        "print(sqlite_driver.driver_name(), sqlite_driver.unsound('3.40.1'))"
    )
    command = [sys.executable, "-c", program, f"sqlite:///{tmp_path / 'loom.db'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    version, told = done.stdout.splitlines()
    assert version == codes.sqlite_version
    assert told.startswith("sqlite3 SQLite 3.40.1 ")
    assert "pip install pysqlite3" in told


def test_errors_carry_the_code_whichever_library_raised_them() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (a PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError) as raised:
            connection.execute("INSERT INTO t VALUES (1)")
    assert raised.value.sqlite_errorcode & 0xFF == codes.SQLITE_CONSTRAINT
