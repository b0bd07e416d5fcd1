"""What a plain turn costs a server: how often it is waited for, and how much of its log it writes."""

from collections.abc import Iterator
from itertools import pairwise
from statistics import median

import psycopg
import pytest

from loom_worker.store.database import Database
from tests.support import store_postgres
from tests.support.counting_proxy import CountingProxy
from tests.unit.store.made import plain_turn

pytestmark = pytest.mark.heavy

MOST_TRIPS, MOST_LOGGED_BYTES, TURNS = 14, 12_000, 50


@pytest.fixture
def fresh_url(postgres_url: str) -> str:
    """A database without the dead rows of other tests: their places in indexes cost more of the log."""
    return store_postgres.another(postgres_url, is_made=True)


@pytest.fixture
def counted(fresh_url: str) -> Iterator[tuple[CountingProxy, Database]]:
    port = psycopg.conninfo.conninfo_to_dict(fresh_url)["port"]
    with CountingProxy(int(port or 0)) as proxy:
        database = Database(fresh_url.replace(f":{port}/", f":{proxy.port}/"))
        plain_turn(database)
        yield proxy, database
        database.close()


def test_a_plain_turn_waits_for_the_server_few_times(counted: tuple[CountingProxy, Database]) -> None:
    proxy, database = counted
    for _ in range(TURNS):  # until all statements are prepared
        plain_turn(database)
    before = proxy.trips
    for _ in range(TURNS):
        plain_turn(database)
    assert proxy.trips - before <= MOST_TRIPS * TURNS


def test_a_plain_turn_writes_little_of_the_log(counted: tuple[CountingProxy, Database], fresh_url: str) -> None:
    _, database = counted
    with psycopg.connect(fresh_url, autocommit=True) as connection:

        def logged() -> int:
            row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
            assert row is not None
            return int(row[0])

        marks = [logged()]
        for _ in range(TURNS):
            plain_turn(database)
            marks.append(logged())
    # The server's own work, such as a vacuum, is in some of them.
    assert median(after - before for before, after in pairwise(marks)) <= MOST_LOGGED_BYTES
