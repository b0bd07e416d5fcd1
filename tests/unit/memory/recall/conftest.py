"""Long sessions are told once for all tests here; each gets a copy of the database."""

import shutil
from pathlib import Path

import pytest

from tests.unit.memory.recall import made
from tests.unit.memory.recall.made import Told


@pytest.fixture(scope="session")
def apples(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    file = tmp_path_factory.mktemp("apples") / "loom.db"
    shutil.copy(empty_database, file)
    return Told.told(file, made.apples)


@pytest.fixture(scope="session")
def questions(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    file = tmp_path_factory.mktemp("questions") / "loom.db"
    shutil.copy(empty_database, file)
    return Told.told(file, made.questions)
