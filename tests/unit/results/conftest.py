"""References over a real database and folder, and fakeredis with its Lua."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fakeredis
import pytest

from loom_worker.results.references import References, stores
from loom_worker.settings import BlobSettings
from loom_worker.store.blobs import BlobRows
from loom_worker.store.database import Database
from loom_worker.values.tools import Caller
from loom_worker.values.turns import Claim
from tests.unit.results.made import Make, caller_of
from tests.unit.store.made import running


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
