"""Measure the store's steps in a crowd: `python -m bench.crowded [--store postgresql]`. One JSON line a figure.

Each step is timed among 1,000 sessions with 1,000 queued turns, then among 1,000,000 sessions of which 10,000 have ten
queued turns each; all are in one workspace.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import reduce
from typing import Any

from sqlalchemy import FromClause, Integer, String, Table, cast, insert, literal, select, true

from bench.stores import STORES, figure, vacuum
from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.turns import NewTurn
from loom_worker.store.budgets import Budgets
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.folding import Folding
from loom_worker.store.journal import Journal
from loom_worker.store.memory import Memories
from loom_worker.store.schema import sessions, turns
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import submit
from loom_worker.store.turns import Turns
from loom_worker.tasks.sweep import MOST
from tests.unit.store import made

FEW, MANY = (1_000, 1_000, 1), (1_000_000, 10_000, 10)
"""Sessions, those of them with queued turns, and how many each."""
LIMITS = LimitSettings(workspace_depth=1 << 30)
TIMES = 300
"""How often each step is timed; the median counts."""


def main() -> None:
    """The steps in both crowds, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=STORES, default="sqlite")
    given = parser.parse_args()
    with STORES[given.store]() as store:
        _fill(store, *FEW)
        few = _steps(store)
        _fill(store, *MANY)
        many = _steps(store)
    for name, taken_ms in few.items():
        figure(name, many[name] / taken_ms, "times", few_ms=round(taken_ms, 3), many_ms=round(many[name], 3))


def _fill(store: Database, count: int, busy: int, each: int) -> None:
    """So many sessions, the first of which wait for their turns."""
    kind = f"c{count}"
    turn = made.submitted(store, kind, input="How many orders are there?")
    at, name = _named(kind, count)
    _copy(store, sessions, sessions.c.lane == turn.lane, at, lane=name, id=name, queue_depth=literal(0))
    (at, name), (place, own) = _named(kind, busy), _named("turn", each)
    own = own.concat("-").concat(name)
    _copy(store, turns, turns.c.id == turn.id, at, place, id=own, lane=name, session_id=name, seq=place.c.n)
    while Folding(store).fold():
        pass
    vacuum(store)


def _named(kind: str, count: int) -> tuple[Any, Any]:
    """The numbers from 1 to count, and a name for each."""
    first = select(literal(1, Integer).label("n")).cte(recursive=True)
    numbers = first.union_all(select(first.c.n + 1).where(first.c.n < count))
    return numbers, literal(f"{kind}-").concat(cast(numbers.c.n, String))


def _copy(store: Database, table: Table, is_copied: Any, *places: Any, **changed: Any) -> None:
    """A row once for each place, with other values."""
    values = [changed.get(column.name, column) for column in table.c]
    source: FromClause = reduce(lambda joined, place: joined.join(place, true()), places, table)
    query = select(*values).select_from(source).where(is_copied)
    with store.write(lock=WHOLE) as tx:
        tx.execute(insert(table).from_select([column.name for column in table.c], query))


def _steps(store: Database) -> dict[str, float]:
    """Median ms of each step; a turn that is submitted is ended, so that the crowd stays as it is."""
    taken_ms: dict[str, list[float]] = {}

    def timed(step: str, what: Callable[[], Any]) -> Any:
        began_s = time.perf_counter()
        found = what()
        taken_ms.setdefault(step, []).append((time.perf_counter() - began_s) * 1000)
        return found

    later_ms, claims = made.NOW_MS + 10_000, Claims(store)
    for n in range(TIMES):
        session = f"{time.monotonic_ns()}" if n % 2 else "known"
        new = (made.WORKSPACE, NewSession(id=session))
        kind = "submit to a new session" if n % 2 else "submit"
        timed(kind, lambda new=new: submit(store, LIMITS, new, NewTurn("hello"), now_ms=made.NOW_MS))
        lane = Sessions(store).get(made.WORKSPACE, session).lane
        claim = timed("claim", lambda lane=lane: made.claimed(store, lane))
        timed("load", lambda lane=lane, claim=claim: Memories(store).load(lane, limit=40, claim=claim))
        said = (made.message(0, claim, id=f"m{time.monotonic_ns()}"),)
        timed("end", lambda claim=claim, said=said: Journal(store).finish(claim, made.final(said=said)))
        timed("list sessions", lambda: Sessions(store).page(made.WORKSPACE, limit=50, after=None))
        timed("list turns", lambda: Turns(store).page(made.WORKSPACE, limit=50, after=None, where={}))
        timed("queue's figures", lambda: Turns(store).stats(made.WORKSPACE, now_ms=later_ms))
        if n % 10 == 0:
            Folding(store).fold()
            timed("sweep, a page of lanes", lambda: claims.open_lanes(created_before_ms=later_ms, limit=MOST))
            timed("sweep, answered turns", lambda: claims.answered_lanes(limit=MOST))
            timed("sweep, awaited turns", lambda: claims.awaited_lanes(now_ms=later_ms, limit=MOST))
            timed("sweep, lost reservations", lambda: Budgets(store).settle_lost((), before_ms=later_ms))
    return {step: statistics.median(each) for step, each in taken_ms.items()}


if __name__ == "__main__":
    main()
