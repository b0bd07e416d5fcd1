"""How much SQLite does, whoever asks it: `with counted(database) as steps: …`, then `steps.taken`.

Steps of its virtual machine do not depend on how busy the machine is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from loom_worker.store.database import Database
from tests.support.every_connection import each_connection


@dataclass
class Steps:
    """Those taken so far."""

    taken: int = 0

    def tick(self) -> int:
        """One more; 0 lets SQLite go on."""
        self.taken += 1
        return 0


@contextmanager
def counted(database: Database) -> Iterator[Steps]:
    """The steps of all connections together, those that look at the schema included."""
    steps = Steps()

    def listen(raw: Any, *_: Any) -> None:
        raw.set_progress_handler(steps.tick, 1)

    with each_connection(database, listen):
        yield steps
