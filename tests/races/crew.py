"""Rounds of a race: a few threads on two databases of one server, which begin at a barrier."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from loom_worker.core.errors import LoomError, Unavailable
from loom_worker.store.database import Database
from loom_worker.store.engines.postgresql_server import StatementRefused

MOST = 4
"""Acts of one round."""
WAIT_S = 60.0
Act = Callable[[Database], Any]
Round = tuple[Sequence[Act], Callable[[list[Any]], bool]]
"""What is done at one moment, and whether its results are right, refusals among them."""

NEVER = (SQLAlchemyError, psycopg.Error, StatementRefused, Unavailable)
"""Errors that no act may end with: the server is there, and a deadlock is one that our locks did not prevent."""
_EMPTY = """
CREATE OR REPLACE FUNCTION loom_lock(kind text, space text, subject text)
RETURNS void LANGUAGE plpgsql AS 'BEGIN END'
"""


class Race(Protocol):
    """Prepared once; what a round needs beyond that it makes before its acts begin."""

    def round(self, n: int) -> Round:
        """The round of this number, from 0."""
        ...


class Crew:
    """Threads that run acts; each second one has a pool of connections of its own."""

    def __init__(self, url: str) -> None:
        self.databases = [Database(url), Database(url)]
        self._threads = ThreadPoolExecutor(MOST)

    def close(self) -> None:
        """Give threads and connections back."""
        self._threads.shutdown()
        for database in self.databases:
            database.close()

    def wrong(self, race: Race, rounds: int) -> Iterator[tuple[int, list[Any]]]:
        """Run the rounds; those that went wrong, each with the results of its acts."""
        for n in range(rounds):
            acts, is_right = race.round(n)
            results = self._at_once(acts)
            if not _are_right(results, is_right):
                yield n, results

    def _at_once(self, acts: Sequence[Act]) -> list[Any]:
        barrier = threading.Barrier(len(acts))

        def run(act: Act, database: Database) -> Any:
            barrier.wait(WAIT_S)
            try:
                return act(database)
            except (LoomError, *NEVER) as error:
                return error

        begun = [self._threads.submit(run, act, self.databases[at % 2]) for at, act in enumerate(acts)]
        return [each.result(WAIT_S) for each in begun]


def _are_right(results: list[Any], is_right: Callable[[list[Any]], bool]) -> bool:
    try:
        return not any(isinstance(each, NEVER) for each in results) and is_right(results)
    except (AttributeError, TypeError):  # an error stands where the race looks at a result
        if any(isinstance(each, LoomError) for each in results):
            return False
        raise


@contextmanager
def emptied_locks(url: str) -> Iterator[None]:
    """Nobody waits for anybody meanwhile."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_get_functiondef('loom_lock'::regproc)").fetchone()
        assert row is not None
        connection.execute(_EMPTY)
        try:
            yield
        finally:
            connection.execute(row[0])
