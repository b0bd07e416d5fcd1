"""The engine for PostgreSQL on a server of its own: it is made once, holds what is written, and outlives its server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, create_engine, insert, select

from loom_worker.core.errors import Unavailable
from loom_worker.core.settings import from_env
from loom_worker.core.values.chat import ChatMessage
from loom_worker.store import schema
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.prepare import prepare
from loom_worker.store.search import Search
from loom_worker.store.tables import pairings
from tests.support import store_postgres
from tests.support.postgres import Postgres, started
from tests.unit.store.made import WORKSPACE, final, message, plain_turn, running

pytestmark = [pytest.mark.heavy, pytest.mark.takes(15)]
PAIRING = {"id": "p1", "workspace": WORKSPACE, "channel": "sms", "identity": "+1", "user": "m", "created_ms": 1}


PREPARES = """
import sys
from loom_worker.core.settings import from_env
from loom_worker.store.prepare import prepare
import loom_worker.store.engines.postgresql
print("ready", flush=True)
sys.stdin.readline()
print(prepare(from_env()))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with started("its engine is not tested") as server:
        yield server


@pytest.fixture
def url(server: Postgres) -> str:
    return store_postgres.another(server.store_url)


@pytest.fixture
def database(url: str, tmp_path: Path) -> Iterator[Database]:
    settings = from_env({"LOOM_HOME": str(tmp_path), "LOOM_DATABASE_URL": url})
    prepare(settings)
    with closing(Database.of(settings)) as database:
        yield database


def test_four_that_prepare_at_once_make_one_database(url: str, tmp_path: Path) -> None:
    env = {**os.environ, "LOOM_HOME": str(tmp_path), "LOOM_DATABASE_URL": url}
    command = [sys.executable, "-c", PREPARES]
    crew = [subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
    pipes = [(each.stdin, each.stdout) for each in crew if each.stdin and each.stdout]
    for _, said in pipes:
        assert said.readline() == b"ready\n"
    for told, _ in pipes:
        told.write(b"\n")
        told.flush()
    found = [each.communicate(timeout=60)[0] for each in crew]
    assert b"True\n" in found
    assert [each.returncode for each in crew] == [0] * 4
    with closing(Database(url)) as database:
        assert database.engine.version() == schema.VERSION
        plain_turn(database)


def test_the_scripts_make_the_schema_that_the_code_has(database: Database, url: str) -> None:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        options = {"version_table": "loom_version", "compare_type": False}  # texts have no length there
        changes = compare_metadata(MigrationContext.configure(connection, opts=options), schema.metadata)
    engine.dispose()
    # The search has an index, over a column of its own, as it has tables of its own in a file.
    assert [(change[0], change[-1].name) for change in changes] == [
        ("remove_index", "messages_by_words"),
        ("remove_column", "search"),
    ]


def test_a_snapshot_takes_no_writes_and_sees_one_moment(database: Database) -> None:
    turn = running(database).turn
    with database.read() as tx:
        before = tx.execute(select(schema.turns.c.id)).scalars().all()
        running(database, "s2")
        assert tx.execute(select(schema.turns.c.id)).scalars().all() == before == [turn.id]
    with pytest.raises(Unavailable, match="takes no writes"), database.read() as tx:
        tx.execute(insert(pairings), PAIRING)


def test_texts_of_any_length_are_kept_and_searched(database: Database) -> None:
    claim = running(database)
    words = " ".join(f"word{n:x}" for n in range(400_000)) + " 🎉 naïve"
    Journal(database).finish(
        claim, final(said=(message(1, claim, chat=ChatMessage("user", words)),), entries=Entries())
    )
    (hit,) = Search(database).session(WORKSPACE, "s1", "word2a or naïve", limit=5)
    assert hit.message_id == "msg_0001"
    with database.read() as tx:
        assert tx.execute(select(schema.messages.c.content)).scalar_one() == words


def test_what_was_committed_outlives_a_server_that_is_killed_and_the_same_process_goes_on(
    server: Postgres, database: Database
) -> None:
    claims = [running(database, f"s{n}") for n in range(100, 200)]
    server.crash()
    with pytest.raises(Unavailable, match="does not answer"):
        running(database, "s2")
    server.restart()
    assert all(Claims(database).is_ours(claim) for claim in claims)
    running(database, "s2")


def test_a_transaction_that_a_dying_server_cut_off_wrote_nothing(server: Postgres, database: Database) -> None:
    def cut_off(tx: Connection) -> None:
        tx.execute(insert(pairings), PAIRING)
        server.crash()

    with pytest.raises(Unavailable, match="does not answer"), database.write(lock=WHOLE) as tx:
        cut_off(tx)
    server.restart()
    with database.read() as tx:
        assert tx.execute(select(pairings.c.id)).all() == []


def test_all_connections_of_a_process_are_made_anew_behind_a_server_that_was_killed(
    server: Postgres, database: Database, url: str
) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: plain_turn(database, f"s{n}"), range(8)))
        server.crash()
        server.restart()
        with pytest.raises(Unavailable):
            plain_turn(database, "s0")
        list(threads.map(lambda n: plain_turn(database, f"s{n}"), range(8)))
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM turns WHERE status = 'completed'").fetchone() == (16,)
