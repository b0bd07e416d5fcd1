"""One server for all races."""

from collections.abc import Iterator

import pytest

from tests.races.crew import Crew
from tests.support import store_postgres
from tests.support.postgres import started


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with started("nothing races") as server:
        yield store_postgres.made(server)


@pytest.fixture(scope="session")
def _crew(postgres_url: str) -> Iterator[Crew]:
    made = Crew(postgres_url)
    yield made
    made.close()


@pytest.fixture
def crew(_crew: Crew, postgres_url: str) -> Crew:
    store_postgres.emptied(postgres_url)
    return _crew
