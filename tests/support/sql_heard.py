"""Every statement that a database's connections are given, whoever gives it: `with heard(database) as said: …`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from loom_worker.store.database import Database
from tests.support.every_connection import each_connection
from tests.support.psycopg_cursors import before_each


@contextmanager
def heard(database: Database) -> Iterator[list[str]]:
    """The texts of the statements, their values written into them, in order; of all connections together."""
    said: list[str] = []

    def listen(raw: Any, *_: Any) -> None:
        if isinstance(raw, psycopg.Connection):
            before_each(raw, said.append)
        else:
            raw.set_trace_callback(said.append)

    with each_connection(database, listen):
        yield said
