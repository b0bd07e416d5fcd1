"""Statements that go to the driver directly, and do what SQLAlchemy does with them."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import bindparam, insert, select, update

from loom_worker.core.values.turns import Claim, Step
from loom_worker.store import turn_statements
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.memory import Memories
from loom_worker.store.prepared import PreparedStatement
from loom_worker.store.schema import sessions, turns
from loom_worker.store.turns import Turns
from tests.support.refused import REFUSED
from tests.support.sql_heard import heard
from tests.unit.store.made import WORKSPACE, claimed, final, message, running, submitted

STEPS = Entries((Step(0, "matched", {}), Step(1, "reply", {"text": "text 1"})))
SESSION = select(sessions).where(sessions.c.id == bindparam("our_id"))


def test_a_row_is_what_sqlalchemy_makes_of_it(database: Database) -> None:
    submitted(database)
    with database.read() as tx:
        (theirs,) = tx.execute(SESSION, {"our_id": "s1"}).mappings()
        ours = PreparedStatement(SESSION).first(tx, {"our_id": "s1"})
    assert ours == dict(theirs)
    assert isinstance(ours["usage"], dict)


def test_what_is_not_there_is_none_or_nothing(database: Database) -> None:
    with database.read() as tx:
        assert PreparedStatement(SESSION).first(tx, {"our_id": "s2"}) is None
        assert PreparedStatement(SESSION).all(tx, {"our_id": "s2"}) == []


def test_a_value_that_is_missing_is_an_error_before_anything_is_written(database: Database) -> None:
    with pytest.raises(KeyError, match="our_id"), database.read() as tx:
        PreparedStatement(SESSION).first(tx, {})


def test_json_and_null_are_stored_as_sqlalchemy_stores_them(database: Database) -> None:
    submitted(database)
    change = PreparedStatement(
        update(sessions)
        .where(sessions.c.id == bindparam("our_id"))
        .values(kernel=bindparam("known"), budget=bindparam("b"))
    )
    with database.write(lock=WHOLE) as tx:
        assert change.run(tx, {"our_id": "s1", "known": {"goals": ["é"]}, "b": None}) == 1
        assert change.run(tx, {"our_id": "s2", "known": {}, "b": None}) == 0
    with database.read() as tx:
        stored = tx.execute(select(sessions.c.kernel, sessions.c.budget)).one()
        assert tx.exec_driver_sql("SELECT budget IS NULL FROM sessions").scalar_one() == 1
    assert tuple(stored) == ({"goals": ["é"]}, None)


def test_what_a_failed_transaction_wrote_is_gone(database: Database) -> None:
    claim = running(database)
    name = PreparedStatement(update(turns).where(turns.c.id == bindparam("our_id")).values(agent=bindparam("agent")))

    def write_and_fail() -> None:
        with database.write(lock=WHOLE) as tx:
            name.run(tx, {"our_id": claim.turn.id, "agent": "other"})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    with database.read() as tx:
        assert tx.execute(select(turns.c.agent)).scalar_one() == claim.turn.agent


def test_both_ways_write_in_one_transaction(database: Database) -> None:
    claim = running(database)

    def write_both() -> None:
        with database.write(lock=WHOLE) as tx:
            tx.execute(update(turns).values(agent="other"))
            PreparedStatement(insert(turns), columns=("id",)).run(tx, {"id": claim.turn.id})

    with pytest.raises(REFUSED):
        write_both()
    with database.read() as tx:
        assert tx.execute(select(turns.c.agent)).scalar_one() == claim.turn.agent


def test_a_snapshot_holds_from_its_beginning(database: Database) -> None:
    submitted(database)
    with database.read() as tx:
        before = PreparedStatement(SESSION).first(tx, {"our_id": "s1"})
        submitted(database)
        assert PreparedStatement(SESSION).first(tx, {"our_id": "s1"}) == before


def prepared() -> dict[str, PreparedStatement]:
    found: dict[str, Any] = vars(turn_statements)
    named = {name: each for name, each in found.items() if isinstance(each, PreparedStatement)}
    return named | {"fenced_update": turn_statements.fenced_update(("status",))}


def test_every_statement_of_a_turn_s_way_fits_the_schema(database: Database) -> None:
    with database.read() as tx:
        for name, each in prepared().items():
            try:
                sql = re.sub(r"\?|(?<!%)%s", "NULL", each.compiled(tx.dialect).sql)
                tx.exec_driver_sql(f"EXPLAIN {sql}")
            except Exception as error:
                raise AssertionError(f"{name}: {error}") from error


def test_so_many_statements_does_a_plain_turn_need(database: Database) -> None:
    """Who adds one finds it here: each runs for every turn. The beginning and end of a transaction count, too."""
    first = running(database)  # so that the session is there
    Journal(database).finish(first, final())
    claims: list[Claim] = []
    counts: dict[str, int] = {}
    acts: dict[str, Callable[[], object]] = {
        "accepted": lambda: submitted(database),
        "claimed": lambda: claims.append(claimed(database, first.turn.lane)),
        "its memory": lambda: Memories(database).load(first.turn.lane, limit=9, claim=claims[0]),
        "ended": lambda: Journal(database).finish(claims[0], final(said=(message(1, claims[0]),), entries=STEPS)),
        "looked at": lambda: Turns(database).get(WORKSPACE, claims[0].turn.id),
    }
    for name, act in acts.items():
        with heard(database) as said:
            act()
        counts[name] = len(own(said))
    ended = {"SQLite": 12, "PostgreSQL": 11}[database.engine.name]  # its lock takes the place of two settings
    assert counts == {"accepted": 6, "claimed": 4, "its memory": 5, "ended": ended, "looked at": 4}


def own(said: list[str]) -> list[str]:
    """Without the settings of the connection, and without what triggers do: that is heard as what fired them, again."""
    asked = [one for one in said if not one.startswith(("--", "PRAGMA", "SELECT loom_begin"))]
    return [one for one, earlier in zip(asked, ["", *asked], strict=False) if one != earlier]
