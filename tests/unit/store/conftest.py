"""A database is migrated once for all tests here; each gets a copy of the file."""

import shutil
from pathlib import Path

import pytest

from loom_worker.core.settings import Settings, from_env
from loom_worker.store.prepare import prepare


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("migrated")
    prepare(from_env({"LOOM_HOME": str(home)}))
    return home / "loom.db"


@pytest.fixture
def settings(tmp_path: Path, migrated: Path) -> Settings:
    shutil.copy(migrated, tmp_path / "loom.db")
    return from_env({"LOOM_HOME": str(tmp_path), "LOOM_SQLITE_SYNC": "normal"})
