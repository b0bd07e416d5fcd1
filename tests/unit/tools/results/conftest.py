"""References over a real database and folder, and fakeredis with its Lua."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fakeredis
import pytest

from loom_worker.core.settings_tree import BlobSettings
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Claim
from loom_worker.store.blobs import BlobRows
from loom_worker.store.database import Database
from loom_worker.tools.references import References, stores
from tests.unit.store.made import running
from tests.unit.tools.results.made import Make, caller_of


@pytest.fixture
def redis() -> Iterator[Any]:
    with fakeredis.FakeRedis() as fake:
        yield fake


@pytest.fixture
def make(database: Database, redis: Any, tmp_path: Path) -> Make:
    """References with other settings than usual, on the same folder, database and Redis."""

    def made(**fields: Any) -> References:
        settings = replace(BlobSettings(folder=tmp_path / "blobs"), **fields)
        return References(stores(settings, BlobRows(database), redis), settings)

    return made


@pytest.fixture
def references(make: Make) -> References:
    return make()


@pytest.fixture
def claim(database: Database) -> Claim:
    """A turn that runs."""
    return running(database)


@pytest.fixture
def caller(claim: Claim) -> Caller:
    return caller_of(claim)
