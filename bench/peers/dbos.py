"""DBOS behind Flask, in one process, with its default database, SQLite: a queue with a partition for each session.

A partition runs one workflow at a time, in order. The workflow has one step, a transaction of DBOS' datasource that
reads the session and appends to it. DBOS' queues look into the database once a second, and so do those who wait for a
result; a second would be all of the figure, so both look more often here. Its journal mode and durability are left as
they are: a rollback journal, synchronous=FULL.

    python -m bench.peers.dbos PORT SECONDS_BETWEEN_LOOKS
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.peers.front import Behind, behind_front, serve
from bench.peers.peer import HISTORY, interpreter, versions

INSTALL = "DBOS is not installed: `python3 -m venv ~/loom-peers && ~/loom-peers/bin/pip install dbos flask waitress`, \
then put ~/loom-peers/bin on the PATH"


@contextmanager
def running(*, poll_s: float) -> Iterator[Behind]:
    """With the interpreter that has it.

    Args:
        poll_s: pause between two looks for work, and for a result: short ones find it at once, and take the processor
            and the database from those who work.

    Raises:
        NotInstalled: there is none.
    """
    from tests.support.webhook_receiver import unused_port

    python, port = interpreter("dbos", ("dbos", "flask", "waitress"), missing=INSTALL), unused_port()

    def commands(_folder: str) -> Iterator[tuple[str, ...]]:
        yield (python, "-m", "bench.peers.dbos", str(port), str(poll_s))

    with behind_front(
        f"DBOS, looking every {poll_s * 1000:g} ms", versions(python, "dbos", "flask", "sqlalchemy"), port, commands
    ) as peer:
        yield peer


def main(port: int, poll_s: float) -> None:
    """Be that process; its databases are in the current folder."""
    import sqlalchemy as sa
    from dbos import DBOS, SetEnqueueOptions, SQLAlchemyDatasource

    DBOS(config={"name": "peer", "system_database_url": "sqlite:///system.sqlite", "log_level": "ERROR"})
    source = SQLAlchemyDatasource.create("sqlite:///app.sqlite")
    with source.engine.begin() as tx:
        tx.execute(sa.text("CREATE TABLE messages (n INTEGER PRIMARY KEY, session TEXT, role TEXT, text TEXT)"))
        tx.execute(sa.text("CREATE INDEX of_session ON messages (session, n)"))
    past = sa.text("SELECT role, text FROM messages WHERE session = :session ORDER BY n DESC LIMIT :most")
    said = sa.text("INSERT INTO messages (session, role, text) VALUES (:session, :role, :text)")

    @source.transaction()
    def append(session: str, text: str) -> str:
        tx = source.sql_session()
        tx.execute(past, {"session": session, "most": HISTORY}).all()  # what a model would be shown
        answer = f"You said: {text}"
        rows = (("user", text), ("assistant", answer))
        tx.execute(said, [{"session": session, "role": role, "text": content} for role, content in rows])
        return answer

    @DBOS.workflow()
    def turn(session: str, text: str) -> str:
        return append(session, text)

    DBOS.launch()
    queue = DBOS.register_queue("turns", partition_concurrency=1, polling_interval_sec=poll_s)

    def submit(session: str, text: str) -> str:
        with SetEnqueueOptions(queue_partition_key=session):
            return queue.enqueue(turn, session, text).workflow_id

    def wait(turn_id: str) -> object:
        return DBOS.retrieve_workflow(turn_id).get_result(polling_interval_sec=poll_s)

    serve(port, submit, wait)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
