"""Every statement that a database's connections are given, whoever gives it: `with heard(database) as said: …`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from loom_worker.store.database import Database


@contextmanager
def heard(database: Database) -> Iterator[list[str]]:
    """The texts of the statements, their values written into them, in order; of all connections together."""
    said: list[str] = []

    def listen(raw: Any, *_: Any) -> None:
        raw.set_trace_callback(said.append)

    with database.write(), database.read() as tx:  # the writer's connection is checked out for good
        engine = tx.engine
    event.listen(engine, "checkout", listen)
    database.close()  # so that the writer is, too, checked out anew
    try:
        yield said
    finally:
        event.remove(engine, "checkout", listen)
        database.close()
