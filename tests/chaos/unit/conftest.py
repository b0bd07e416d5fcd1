import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_worker.core.settings import Settings, from_env
from loom_worker.store.database import Database
from tests.chaos.run_client import RunLog
from tests.chaos.unit.made import Run, good_run


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Run:
    """A good run, made once: each test breaks a copy of it."""
    home = tmp_path_factory.mktemp("good-run")
    shutil.copy(empty_database, home / "loom.db")
    settings = from_env({"LOOM_HOME": str(home), "LOOM_SQLITE_SYNC": "normal"})
    database = Database(settings.database_url, sync="normal")
    run = good_run(settings, database)
    database.close()
    return run


@pytest.fixture
def run(template: Run, settings: Settings, database: Database) -> Run:
    shutil.copy(template.settings.home / "loom.db", settings.home / "loom.db")
    lists = ("submitted", "polled", "calls", "hooks", "effects", "decided", "read")
    copies: dict[str, Any] = {name: list(getattr(template, name)) for name in lists}
    return replace(template, settings=settings, database=database, runs=RunLog(), **copies)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the fault harness itself run with `make test-all`."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.heavy)
