"""What a plain turn costs a server: how often it is waited for, and how much of its log it writes."""

from collections.abc import Iterator
from itertools import pairwise
from statistics import median

import psycopg
import pytest

from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.turns import NewTurn, Step
from loom_worker.store.database import Database
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.memory import Memories
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import submit
from tests.support.counting_proxy import CountingProxy
from tests.unit.store.made import NOW_MS, WORKSPACE, claimed, final, message

pytestmark = pytest.mark.heavy

MOST_TRIPS, MOST_LOGGED_BYTES, TURNS = 14, 12_000, 50


def plain_turn(database: Database) -> None:
    """A question as a client asks it, and an answer without tools."""
    Sessions(database).asked(WORKSPACE, "s1", "default")
    new = (WORKSPACE, NewSession(id="s1"))
    turn, _ = submit(database, LimitSettings(), new, NewTurn("How many orders are there?"), now_ms=NOW_MS)
    claim = claimed(database, turn.lane)
    Memories(database).load(turn.lane, limit=40, claim=claim)
    texts = (ChatMessage("user", "How many orders are there?"), ChatMessage("assistant", "There are 20,353. " * 8))
    said = tuple(message(0, claim, id=new_id("msg_"), chat=text) for text in texts)
    steps = (Step(1, "matched", {"ids": ["a"]}, 1), Step(2, "reply", {"text": "There are 20,353."}, 1))
    Journal(database).finish(claim, final(said=said, entries=Entries(steps=steps)))


@pytest.fixture
def counted(postgres_url: str) -> Iterator[tuple[CountingProxy, Database]]:
    port = psycopg.conninfo.conninfo_to_dict(postgres_url)["port"]
    with CountingProxy(int(port or 0)) as proxy:
        database = Database(postgres_url.replace(f":{port}/", f":{proxy.port}/"))
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


def test_a_plain_turn_writes_little_of_the_log(counted: tuple[CountingProxy, Database], postgres_url: str) -> None:
    _, database = counted
    with psycopg.connect(postgres_url, autocommit=True) as connection:

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
