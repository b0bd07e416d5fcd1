"""What retention removes becomes room on the disk: the file of SQLite is made smaller."""

from pathlib import Path

import pytest

from loom_worker.core.errors import Unavailable
from loom_worker.core.settings_tree import RetentionSettings, Settings
from loom_worker.core.values.turns import Step
from loom_worker.store.database import Database
from loom_worker.store.engines import sqlite_space as space
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.engines.sqlite_file import database_path
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.retention import DAY_MS, PAUSE_MS, Retention
from tests.unit.store.made import NOW_MS, counts, final, running

OVER_MS = NOW_MS + 4 * DAY_MS


def test_free_pages_are_given_back_to_the_disk_in_steps(settings: Settings, database: Database) -> None:
    journals = Retention(database, RetentionSettings(journal_days=3))
    for number in range(4):
        claim = running(database, f"s{number}")
        Journal(database).finish(claim, final(entries=Entries([Step(0, "reply", {"text": "x" * 4_000_000})])))
    full = pages(database)
    for sweep in range(8):
        journals.once(OVER_MS + sweep * PAUSE_MS)
    assert pages(database) < full / 3
    database.close()
    assert database_path(settings.database_url).stat().st_size < full * 4096 / 3


def pages(database: Database) -> int:
    with database.read() as tx:
        return int(tx.exec_driver_sql("PRAGMA page_count").scalar_one())


@pytest.mark.heavy
def test_a_file_of_an_earlier_loom_is_made_smaller_only_while_nobody_uses_it(
    settings: Settings, database: Database
) -> None:
    file = database_path(settings.database_url)
    Journal(database).finish(running(database), final())
    with pytest.raises(Unavailable, match="in use"):
        space.shrink(file)
    database.close()
    before, after = space.shrink(file)
    assert 0 < after <= before
    assert counts(database)["turns"] == 1
    assert mode(database) == space.INCREMENTAL


def mode(database: Database) -> int:
    with database.read() as tx:
        return int(tx.exec_driver_sql("PRAGMA auto_vacuum").scalar_one())


def test_a_file_that_was_not_made_for_it_is_left_as_it_is_until_it_is_written_anew(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'old.db'}")
    try:
        with database.write(lock=WHOLE) as tx:
            tx.exec_driver_sql("CREATE TABLE t (a)")
            tx.exec_driver_sql("INSERT INTO t VALUES (zeroblob(8000000))")
        with database.write(lock=WHOLE) as tx:
            tx.exec_driver_sql("DELETE FROM t")
        assert space.give_back(database) == 0
        database.close()
        space.shrink(tmp_path / "old.db")
        assert mode(database) == space.INCREMENTAL
    finally:
        database.close()
