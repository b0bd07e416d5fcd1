import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from loom_worker.core.errors import Unavailable
from loom_worker.core.settings import Settings
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.engines.sqlite import WAL_BYTES
from tests.support.at_once import at_once
from tests.support.disks import filled, small_disk, spoil
from tests.unit.store.made import counts, submitted


def path_of(settings: Settings) -> str:
    return settings.database_url.removeprefix("sqlite:///")


@contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """Somebody else writes and does not come to an end."""
    with closing(sqlite3.connect(path_of(settings), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.fixture
def impatient(settings: Settings) -> Iterator[Database]:
    database = Database(settings.database_url, busy_timeout_s=0.05)
    yield database
    database.close()


def pragma(tx: Connection, name: str) -> object:
    return tx.exec_driver_sql(f"PRAGMA {name}").scalar()


@pytest.mark.parametrize(
    ("sync", "durable", "expected"),
    [("full", True, 2), ("full", False, 1), ("normal", True, 1), ("normal", False, 1)],
)
def test_a_write_reaches_the_disk_exactly_where_it_is_promised(
    settings: Settings, sync: str, durable: bool, expected: int
) -> None:
    database = Database(settings.database_url, sync=sync)  # type: ignore[arg-type]
    for _ in range(2):
        for other in (not durable, durable):
            with database.write(durable=other, lock=WHOLE) as tx:
                level = pragma(tx, "synchronous")
        assert level == expected
    database.close()


def test_every_connection_has_its_pragmas(settings: Settings) -> None:
    database = Database(settings.database_url, readers=4)
    wanted = {"foreign_keys": 1, "busy_timeout": 10_000, "journal_mode": "wal", "temp_store": 2}
    with database.read() as one, database.read() as two, database.read() as three, database.write(lock=WHOLE) as writer:
        for tx in (one, two, three):
            assert {name: pragma(tx, name) for name in wanted} == wanted
        # The writer waits for the lock before it begins, in steps of its own.
        assert {name: pragma(writer, name) for name in wanted} == {**wanted, "busy_timeout": 0}
    database.close()


def test_a_reader_sees_one_moment_and_not_what_is_written_meanwhile(database: Database) -> None:
    with database.read() as tx:
        assert tx.exec_driver_sql("SELECT count(*) FROM turns").scalar() == 0
        submitted(database)
        assert tx.exec_driver_sql("SELECT count(*) FROM turns").scalar() == 0
    assert counts(database)["turns"] == 1


def test_a_reader_is_not_held_up_by_a_writer(settings: Settings, impatient: Database) -> None:
    with locked(settings):
        assert counts(impatient)["turns"] == 0


def test_a_lock_that_is_not_let_go_makes_the_database_unavailable_and_no_longer(
    settings: Settings, impatient: Database
) -> None:
    with locked(settings):
        for _ in range(2):
            with pytest.raises(Unavailable, match="locked"):
                submitted(impatient)
    assert submitted(impatient).seq == 1
    assert counts(impatient)["turns"] == 1


def test_a_lock_in_the_way_of_a_write_that_was_open_before_is_told_too(settings: Settings, impatient: Database) -> None:
    submitted(impatient)
    with locked(settings), pytest.raises(Unavailable):
        submitted(impatient)
    assert submitted(impatient).seq == 2


def test_a_lock_that_is_let_go_in_time_is_waited_for(settings: Settings, database: Database) -> None:
    with closing(sqlite3.connect(path_of(settings), isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        soon = threading.Timer(0.1, lambda: other.execute("COMMIT"))
        soon.start()
        assert submitted(database).seq == 1
        soon.join()


def test_a_thread_that_writes_too_long_makes_the_others_unavailable(impatient: Database) -> None:
    begun, end = threading.Event(), threading.Event()

    def hog() -> None:
        with impatient.write(lock=WHOLE):
            begun.set()
            assert end.wait(60)

    thread = threading.Thread(target=hog)
    thread.start()
    assert begun.wait(60)
    with pytest.raises(Unavailable, match="busy"):
        submitted(impatient)
    end.set()
    thread.join()
    assert submitted(impatient).seq == 1


def test_a_block_that_fails_writes_nothing_and_the_next_one_does(database: Database) -> None:
    def fail() -> None:
        with database.write(lock=WHOLE) as tx:
            tx.exec_driver_sql("INSERT INTO pattern_uses VALUES ('w', 'p', 'd', 0, 0, 0, 0, 0, 0)")
            raise KeyError("ours")

    with pytest.raises(KeyError):
        fail()
    assert counts(database)["usage"] == 0
    assert submitted(database).seq == 1


def test_a_full_disk_is_told_as_unavailable_and_leaves_nothing_half_written(database: Database) -> None:
    with database.write(lock=WHOLE) as tx:
        pages = tx.exec_driver_sql("PRAGMA page_count").scalar()
        tx.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Unavailable, match="full"):
        submitted(database, input="x" * 100_000)
    assert counts(database) == dict.fromkeys(counts(database), 0)
    assert submitted(database).seq == 1


def test_a_disk_that_is_full_is_told_by_name_once_and_written_again_when_there_is_room(
    tmp_path: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", size_bytes=2 << 20) as disk:
        shutil.copy(path_of(settings), disk / "loom.db")
        database = Database(f"sqlite:///{disk}/loom.db")
        kept = [submitted(database).id]
        with filled(disk):
            for _ in range(3):
                with pytest.raises(Unavailable, match="disk is full") as error:
                    kept += [submitted(database, input="x" * 100_000).id for _ in range(50)]
                assert error.value.slug == "storage-full"
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert f"{disk}/loom.db" in caplog.text
        kept.append(submitted(database).id)
        with database.read() as tx:
            assert [row[0] for row in tx.exec_driver_sql("SELECT id FROM turns ORDER BY id")] == sorted(kept)
        database.close()


def test_a_disk_that_is_full_from_the_start_is_told_by_name(tmp_path: Path, settings: Settings) -> None:
    with small_disk(tmp_path / "disk", size_bytes=1 << 20) as disk:
        shutil.copy(path_of(settings), disk / "loom.db")
        database = Database(f"sqlite:///{disk}/loom.db")
        with filled(disk), pytest.raises(Unavailable, match="disk is full"):
            submitted(database)
        assert submitted(database).seq == 1
        database.close()


@pytest.mark.parametrize("table", ["turns", "sessions", "messages"])
def test_damage_is_told_with_the_way_out_and_from_then_on_nothing_is_written(
    settings: Settings, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    database = Database(settings.database_url)
    submitted(database)
    database.probe()
    spoil(Path(path_of(settings)), table)
    database.close()
    with pytest.raises(Unavailable, match="damaged") as error, database.read() as tx:
        tx.exec_driver_sql(f"SELECT * FROM {table}").fetchall()
    assert error.value.slug == "storage-damaged"
    assert path_of(settings) not in str(error.value)
    assert path_of(settings) in caplog.text
    assert "`loom doctor`" in caplog.text
    with pytest.raises(Unavailable, match="damaged"):
        database.probe()
    before = Path(path_of(settings)).read_bytes()
    for _ in range(2):
        with pytest.raises(Unavailable, match="damaged"), database.write(lock=WHOLE) as tx:
            tx.exec_driver_sql("DELETE FROM usage")
    database.close()
    assert Path(path_of(settings)).read_bytes() == before


def test_damage_that_a_write_meets_leaves_the_file_as_it_was(settings: Settings, database: Database) -> None:
    submitted(database)
    spoil(Path(path_of(settings)), "turns")
    database.close()
    before = Path(path_of(settings)).read_bytes()
    with pytest.raises(Unavailable, match="damaged"):
        submitted(database)
    database.close()
    assert Path(path_of(settings)).read_bytes() == before


def test_a_file_that_is_no_database_any_more_is_unavailable(settings: Settings, database: Database) -> None:
    Path(path_of(settings)).write_bytes(b"something else" * 1000)
    for _ in range(2):
        with pytest.raises(Unavailable, match="no SQLite database"):
            submitted(database)
    with pytest.raises(Unavailable), database.read() as tx:
        tx.exec_driver_sql("SELECT 1 FROM turns")


def test_a_bug_is_not_told_as_a_failure_of_the_database(database: Database) -> None:
    submitted(database)
    with pytest.raises(IntegrityError), database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("INSERT INTO turns SELECT * FROM turns")
    assert submitted(database).seq == 2


def test_a_database_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/no/such/folder.db")
    with pytest.raises(Unavailable), database.read():
        pass
    with pytest.raises(Unavailable), database.write(lock=WHOLE):
        pass


def test_too_many_readers_wait_for_a_place_and_many_have_one(settings: Settings) -> None:
    database = Database(settings.database_url, readers=24)
    inside, leave, failures = threading.Barrier(25), threading.Event(), []

    def run() -> None:
        try:
            with database.read() as tx:
                tx.exec_driver_sql("SELECT 1")
                inside.wait(60)
                leave.wait(60)
        except (Unavailable, threading.BrokenBarrierError) as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(24)]
    for thread in threads:
        thread.start()
    inside.wait(60)
    submitted(database)
    leave.set()
    for thread in threads:
        thread.join()
    assert failures == []
    database.close()


def test_a_closed_database_opens_again_when_it_is_used(database: Database) -> None:
    submitted(database)
    database.close()
    assert submitted(database).seq == 2


def test_nothing_is_opened_before_the_first_transaction(tmp_path: Path) -> None:
    Database(f"sqlite:///{tmp_path}/new.db").close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.heavy
def test_two_processes_that_write_at_once_lose_nothing(settings: Settings) -> None:
    databases = [Database(settings.database_url, sync="normal") for _ in range(2)]
    at_once(lambda one: [submitted(one) for _ in range(25)], databases * 2)
    assert counts(databases[0])["turns"] == 100
    for one in databases:
        one.close()


def test_what_was_deleted_cannot_be_read_in_the_file(settings: Settings) -> None:
    database = Database(settings.database_url)
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("CREATE TABLE said (text)")
        tx.exec_driver_sql("INSERT INTO said VALUES (?)", ("a secret " * 2000,))
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("DELETE FROM said")
    database.close()  # the last connection writes the log back
    assert not Path(f"{path_of(settings)}-wal").exists()
    assert b"a secret" not in Path(path_of(settings)).read_bytes()


@pytest.mark.heavy
def test_the_write_ahead_log_gives_back_what_a_large_transaction_took(settings: Settings) -> None:
    database = Database(settings.database_url)
    wal = Path(f"{path_of(settings)}-wal")
    try:
        with database.write(lock=WHOLE) as tx:
            tx.exec_driver_sql("CREATE TABLE large (bytes)")
            for _ in range(3 * WAL_BYTES // 1_000_000):
                tx.exec_driver_sql("INSERT INTO large VALUES (zeroblob(1000000))")
        assert wal.stat().st_size > 2 * WAL_BYTES
        for _ in range(3):  # the first commit writes the log back, the next one starts it anew
            with database.write(lock=WHOLE) as tx:
                tx.exec_driver_sql("INSERT INTO large VALUES (1)")
        assert wal.stat().st_size <= WAL_BYTES
    finally:
        database.close()


def test_the_text_of_an_error_does_not_hold_what_was_to_be_written(database: Database) -> None:
    insert = text("INSERT INTO sessions (lane, id) VALUES (:lane, :words)")
    with pytest.raises(IntegrityError) as caught, database.write(lock=WHOLE) as tx:
        tx.execute(insert, {"lane": "l1", "words": "what a user wrote"})
    assert "what a user wrote" not in str(caught.value)
