"""Transactions on a server: what one that failed leaves to those that come after it."""

from collections.abc import Iterator

import pytest
from sqlalchemy import bindparam, insert, select

from loom_worker.core.settings_tree import ServerSettings
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.prepared import PreparedStatement
from loom_worker.store.tables import pairings
from tests.support import store_postgres
from tests.support.refused import REFUSED

pytestmark = pytest.mark.heavy

PAIRING = {"workspace": "w", "channel": "c", "user": "u", "created_ms": 1}


@pytest.fixture
def alone(postgres_url: str) -> Iterator[Database]:
    """A database with one connection."""
    store_postgres.emptied(postgres_url)
    database = Database(postgres_url, server=ServerSettings(pool=1))
    yield database
    database.close()


def test_a_connection_whose_statements_were_refused_serves_on(
    alone: Database, caplog: pytest.LogCaptureFixture
) -> None:
    add = PreparedStatement(insert(pairings), columns=pairings.c.keys())
    # Each is another statement: some are to be prepared just when the transaction fails before them.
    looks = [
        PreparedStatement(select(pairings.c.user).where(pairings.c.id == bindparam(f"id_{n}")).limit(n))
        for n in range(1, 9)
    ]

    def write(number: int, *, is_twin: bool = False, fails: bool = False) -> None:
        with alone.write(lock=WHOLE) as tx:
            add.put(tx, {**PAIRING, "id": f"p{0 if is_twin else number}", "identity": f"i{number}"})
            for n, look in enumerate(looks[: 1 + number % len(looks)], 1):
                look.put(tx, {f"id_{n}": "p0"})
            if fails:
                raise InterruptedError

    write(0)
    for number in range(1, 60):
        with pytest.raises(REFUSED):
            write(number, is_twin=True)
        with pytest.raises((InterruptedError, *REFUSED)):  # mostly before anybody has read that a statement was refused
            write(number, is_twin=True, fails=True)
        write(number)
    with alone.read() as tx:
        assert len(tx.execute(select(pairings.c.id)).all()) == 60
    assert not [each for each in caplog.records if each.name.startswith("psycopg")], "they tell of rows"
