"""Transactions that are broken off anywhere: `with breaking(database) as breaker: breaker.left = 7; …`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from loom_worker.store.database import Database
from tests.support.every_connection import each_connection
from tests.support.psycopg_cursors import before_each

INSTRUCTIONS = 20
"""SQLite counts that many of its own as one step; a step of PostgreSQL is a statement."""


@dataclass
class Breaker:
    """Breaks off what goes on after so many steps; 0: never."""

    left: int = 0

    def tick(self) -> int:
        """One step more; 1 tells SQLite to stop."""
        self.left -= 1
        return int(self.left == 0)


@contextmanager
def breaking(database: Database) -> Iterator[Breaker]:
    """SQLite interrupts the statement; of PostgreSQL the connection is lost before it."""
    breaker = Breaker()

    def listen(raw: Any, *_: Any) -> None:
        if isinstance(raw, psycopg.Connection):
            before_each(raw, lambda _: breaker.tick() and raw.close())
        else:
            raw.set_progress_handler(breaker.tick, INSTRUCTIONS)

    with each_connection(database, listen):
        yield breaker
