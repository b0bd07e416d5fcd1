"""What a turn costs does not grow with what waits beside it, nor with what was said before."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from loom_worker.core.settings import LimitSettings, Settings, from_env
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.turns import NewTurn, Turn
from loom_worker.store.calls import tool_counts
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.folding import Folding
from loom_worker.store.journal import Journal
from loom_worker.store.schema import messages, sessions, turns
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import submit
from loom_worker.store.turns import Turns
from tests.support.work_counted import counted
from tests.unit.store.made import NOW_MS, WORKSPACE, claimed, final, message, said, submitted

pytestmark = pytest.mark.heavy  # tens of thousands of rows are made first

WAITING = 9_900
"""Turns, a hundred below the most that a workspace may have."""
LANES = 1_000
MESSAGES = 100_000
MOST = 1.05
"""Times what it costs where nothing waits and little was said."""


@contextmanager
def opened(settings: Settings) -> Iterator[Database]:
    database = Database(settings.database_url, sync="normal")
    try:
        yield database
    finally:
        database.close()


def some_said(database: Database) -> None:
    said(database, "s1", turns=2)


def turns_wait_in_the_lane(database: Database) -> None:
    some_said(database)
    row = queued_row(database, "s1")
    with database.write(lock=WHOLE) as tx:
        queued = range(1, WAITING)
        tx.execute(insert(turns), [{**row, "id": f"turn_{n:06}", "seq": row["seq"] + n} for n in queued])
        tx.execute(update(sessions).where(sessions.c.lane == row["lane"]).values(next_seq=row["seq"] + WAITING))


def turns_wait_in_other_lanes(database: Database) -> None:
    some_said(database)
    row = queued_row(database, "s2")
    session = row_of(database, sessions, sessions.c.lane == row["lane"])
    with database.write(lock=WHOLE) as tx:
        lanes = range(1, LANES)
        tx.execute(insert(sessions), [{**session, "lane": f"{n:032}", "id": f"other {n}"} for n in lanes])
        queued = [(f"{1 + n % (LANES - 1):032}", n) for n in range(1, WAITING)]
        tx.execute(insert(turns), [{**row, "id": f"turn_{n:06}", "seq": n, "lane": lane} for lane, n in queued])


def much_was_said(database: Database) -> None:
    some_said(database)
    lane = said(database, "s2", turns=1)
    row = row_of(database, messages, messages.c.lane == lane)
    del row["n"]
    with database.write(lock=WHOLE) as tx:
        tx.execute(insert(messages), [{**row, "id": f"msg_{n:06}"} for n in range(MESSAGES)])


def row_of(database: Database, table: Any, condition: Any) -> dict[str, Any]:
    with database.read() as tx:
        return dict(tx.execute(select(table).where(condition).limit(1)).mappings().one())


def queued_row(database: Database, session: str) -> dict[str, Any]:
    return row_of(database, turns, turns.c.id == submitted(database, session).id)


def one_more(database: Database) -> Turn:
    """A turn at the end of the session, whose queue may be as long as the workspace's."""
    session, limits = (WORKSPACE, NewSession(id="s1")), LimitSettings(lane_depth=2 * WAITING)
    return submit(database, limits, session, NewTurn("hello"), now_ms=NOW_MS)[0]


def submits(database: Database) -> Callable[[], object]:
    return lambda: one_more(database)


def claims(database: Database) -> Callable[[], object]:
    lane = one_more(database).lane
    return lambda: claimed(database, lane)


def ends(database: Database) -> Callable[[], object]:
    claim = claimed(database, one_more(database).lane)
    end = final(said=(message(1, claim),))
    return lambda: Journal(database).finish(claim, end)


PREPARED = {"submit": submits, "claim": claims, "end": ends}
GROWN = (turns_wait_in_the_lane, turns_wait_in_other_lanes, much_was_said)


def steps_of(file: Path, home: Path, act: str) -> int:
    """What the act costs SQLite, in a copy of that database."""
    home.mkdir()
    shutil.copy(file, home / "loom.db")
    with opened(from_env({"LOOM_HOME": str(home), "LOOM_SQLITE_SYNC": "normal"})) as database:
        run = PREPARED[act](database)
        with counted(database) as work:
            database.probe()  # each connection looks at the schema once, before anything is measured
            with database.write(lock=WHOLE) as tx:
                tx.exec_driver_sql("SELECT count(*) FROM loom_version")
            before = work.done
            run()
            return work.done - before


@pytest.fixture(scope="module")
def grown(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files by what has grown in them."""
    files = {}
    for grow in (some_said, *GROWN):
        home = tmp_path_factory.mktemp("grown")
        shutil.copy(migrated, home / "loom.db")
        with opened(from_env({"LOOM_HOME": str(home), "LOOM_SQLITE_SYNC": "normal"})) as database:
            grow(database)
            while Folding(database).fold():
                pass
        files[grow.__name__] = home / "loom.db"
    return files


@pytest.mark.parametrize("act", PREPARED)
@pytest.mark.parametrize("what", [grow.__name__ for grow in GROWN])
def test_a_turn_costs_the_same_however_much_waits(grown: dict[str, Path], tmp_path: Path, what: str, act: str) -> None:
    usual = steps_of(grown["some_said"], tmp_path / "usual", act)
    now = steps_of(grown[what], tmp_path / "grown", act)
    assert now <= MOST * usual, f"{act}: {now} steps where {usual} are usual"


def steps_taken(database: Database, act: Callable[[Database], object]) -> int:
    with counted(database) as work:
        database.probe()
        before = work.done
        act(database)
        return work.done - before


ASKED: dict[str, Callable[[Database], object]] = {
    "the figures of the workspace": lambda database: Turns(database).stats(WORKSPACE, now_ms=NOW_MS),
    "the figures of all": lambda database: Turns(database).stats(None, now_ms=NOW_MS),
    "what has begun": lambda database: Turns(database).begun(WORKSPACE, limit=500),
    "lanes with news": lambda database: Claims(database).answered_lanes(limit=9),
    "who waits for a person": lambda database: tool_counts(database, now_ms=NOW_MS),
    "whether any turn is open": lambda database: Claims(database).has_open_turns(),
    "a session": lambda database: Sessions(database).get(WORKSPACE, "s1"),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("what", ["turns_wait_in_the_lane", "turns_wait_in_other_lanes"])
def test_who_looks_at_the_queue_does_not_walk_through_it(grown: dict[str, Path], what: str, asked: str) -> None:
    settings = from_env({"LOOM_HOME": str(grown[what].parent), "LOOM_SQLITE_SYNC": "normal"})
    with opened(settings) as database:
        assert steps_taken(database, ASKED[asked]) < 250


@pytest.mark.parametrize(("what", "lanes"), [("turns_wait_in_the_lane", 1), ("turns_wait_in_other_lanes", LANES - 1)])
def test_the_sweep_takes_steps_for_each_lane_not_for_each_turn(grown: dict[str, Path], what: str, lanes: int) -> None:
    settings = from_env({"LOOM_HOME": str(grown[what].parent), "LOOM_SQLITE_SYNC": "normal"})

    def page(limit: int) -> Callable[[Database], object]:
        return lambda database: Claims(database).open_lanes(created_before_ms=NOW_MS + 1, limit=limit)

    with opened(settings) as database:
        found = Claims(database).open_lanes(created_before_ms=NOW_MS + 1, limit=2 * LANES)
        assert list(found) == sorted(found)
        assert lanes <= len(found) <= lanes + 1
        assert steps_taken(database, page(2 * LANES)) < 100 * len(found) + 200
        assert steps_taken(database, page(10)) < 100 * 10 + 200
