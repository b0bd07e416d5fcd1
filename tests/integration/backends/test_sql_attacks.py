"""The whole corpus against real databases, whose user has every right: only Loom stands in between."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from loom_worker.backends.servers import Caps, server_engine, server_query
from loom_worker.backends.sql import SqlBackend
from loom_worker.core.errors import ToolFailed
from tests.support.sql_attacks import ATTACKS, CANARY, WRITES, Attack
from tests.support.sql_world import SCOPE, World, ask
from tests.support.until import AT_ONCE_S

pytestmark = [pytest.mark.integration, pytest.mark.heavy, pytest.mark.takes(10)]

TIMEOUT_S = 1.0
HARMLESS = {
    "mysql": {
        "a backslash that quotes nothing",
        "a backslash that quotes",
        "a charset's introducer",
    },  # to MySQL each is one text
}
"""Attacks that a database answers without giving away anything."""
LEFT_TO_THE_PARSER = {"duckdb": {"temporary table", "prepared"}, "mysql": {"share lock"}}
"""What changes nothing that lasts, so the database alone lets it through."""


@pytest.fixture
def guarded(world: World) -> Iterator[SqlBackend]:
    with closing(world.backend(scope=SCOPE, timeout_s=TIMEOUT_S)) as backend:
        yield backend


def answer(backend: SqlBackend, attack: Attack) -> tuple[str, bool]:
    """What the model is told, and whether it was refused."""
    try:
        return ask(backend, "execute_sql", sql=attack.sql[:20_000]), False
    except ToolFailed as failed:
        return str(failed), True


def test_no_attack_changes_anything_or_brings_out_what_is_not_to_be_seen(world: World, guarded: SqlBackend) -> None:
    ask(guarded, "execute_sql", sql="SELECT count(*) FROM orders")
    before = world.contents()
    faults = []
    for attack in (each for each in ATTACKS if world.kind in each.kinds):
        start = time.monotonic()
        said, is_refused = answer(guarded, attack)
        took_s = time.monotonic() - start
        if CANARY in said.replace(attack.sql, "") or "root:" in said or took_s > TIMEOUT_S + AT_ONCE_S:
            faults.append((attack.name, said[:300], took_s))
        if not is_refused and attack.name not in HARMLESS.get(world.kind, set()):
            faults.append((attack.name, "was run", said[:200]))
    assert faults == []
    assert world.contents() == before
    assert not Path("/tmp/loom-stolen").exists()
    assert ask(guarded, "execute_sql", sql="SELECT count(*) FROM orders").startswith('{"columns"')


def test_a_write_that_the_parser_let_through_is_stopped_by_the_database(world: World) -> None:
    if world.kind == "sqlite":
        pytest.skip("its guard alone is tested in tests/unit/backends/test_sqlite_guard.py")
    before = world.contents()
    engine = server_engine(make_url(world.url), timeout_s=TIMEOUT_S)
    let_through = set()
    try:
        for attack in (each for each in WRITES if world.kind in each.kinds):
            with contextlib.suppress(SQLAlchemyError):
                server_query(engine, attack.sql, (), Caps(10, 10_000, TIMEOUT_S))
                let_through.add(attack.name)
    finally:
        engine.dispose()
    assert let_through == LEFT_TO_THE_PARSER.get(world.kind, set())
    assert world.contents() == before
