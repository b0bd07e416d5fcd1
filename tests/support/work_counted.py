"""How much a database does, whoever asks it: `with counted(database) as work: …`, then `work.done`.

Neither the steps of SQLite's virtual machine nor the rows that PostgreSQL reads depend on how busy the machine is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from loom_worker.store.database import Database
from tests.support.every_connection import each_connection
from tests.support.query_plans import nodes_heard, rows_read


@dataclass
class Work:
    """Steps of SQLite so far; rows of PostgreSQL, once the block has ended."""

    done: int = 0

    def tick(self) -> int:
        """One more; 0 lets SQLite go on."""
        self.done += 1
        return 0


@contextmanager
def counted(database: Database) -> Iterator[Work]:
    """The work of all connections together; of SQLite with looks at the schema."""
    work = Work()
    if database.engine.name == "PostgreSQL":
        with nodes_heard(database) as nodes:
            yield work
        work.done = sum(map(rows_read, nodes))
        return

    def listen(raw: Any, *_: Any) -> None:
        raw.set_progress_handler(work.tick, 1)

    with each_connection(database, listen):
        yield work
