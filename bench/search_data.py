"""The databases that searches are measured in, and how a figure is printed."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import insert, update

from loom_worker.core.settings import from_env
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.sessions import Message, NewSession
from loom_worker.store import rows
from loom_worker.store.database import Database
from loom_worker.store.prepare import prepare
from loom_worker.store.schema import messages, sessions
from loom_worker.store.sessions import Sessions

WORKSPACE = "bench"
Said = Sequence[tuple[str, str, str, int]]
"""Id, role, text and moment (ms since 1970) of each message of a session."""


@contextmanager
def database() -> Iterator[Database]:
    """A new one in a temporary place."""
    with tempfile.TemporaryDirectory() as home:
        settings = from_env({"LOOM_HOME": home, "LOOM_SQLITE_SYNC": "normal"})
        prepare(settings)
        store = Database(settings.database_url, sync="normal")
        yield store
        store.close()


def load(store: Database, name: str, said: Said, *, user: str | None = None) -> None:
    """A session with these messages."""
    lane = Sessions(store).create(WORKSPACE, NewSession(id=name, user=user), now_ms=1).lane
    made = [
        Message(f"{name}/{at}", name, f"turn-{name}", ChatMessage(role=role, text=text), 1, ms)  # type: ignore[arg-type]
        for at, role, text, ms in said
    ]
    for start in range(0, len(made), 1000):
        with store.write() as tx:
            columns = [rows.message_columns(message, lane=lane) for message in made[start : start + 1000]]
            tx.execute(insert(messages), columns)
    with store.write() as tx:
        tx.execute(update(sessions).where(sessions.c.lane == lane).values(next_seq=len(made) // 2 + 1))


def figure(name: str, value: float, unit: str, **more: object) -> None:
    """Print one."""
    print(json.dumps({"figure": name, "value": round(value, 2), "unit": unit, **more}), flush=True)
