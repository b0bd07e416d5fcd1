"""Something done to every connection a database uses: `with each_connection(database, listen): …`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE


@contextmanager
def each_connection(database: Database, listen: Callable[..., Any]) -> Iterator[None]:
    """`listen` is given the driver's connection each time one is checked out; afterwards all are closed."""
    with database.write(lock=WHOLE), database.read() as tx:  # the writer's connection is checked out for good
        engine = tx.engine
    event.listen(engine, "checkout", listen)
    database.close()  # so that the writer is, too, checked out anew
    try:
        yield
    finally:
        event.remove(engine, "checkout", listen)
        database.close()
