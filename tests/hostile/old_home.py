"""A home that an older Loom left behind: what its model says, and how it is unpacked as if it were left just now.

``data/0006.tar.gz`` was left by the code whose schema was 0006. It holds ``loom.db``, the large
result that the database refers to, and ``expected.json``: what the old Loom told clients just before it was killed.
"""

import json
import sqlite3
import tarfile
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.messages_server import Behaviour, Hang, Say, echo
from tests.support.messages_wire import WireCall, answer, sse

Json = dict[str, Any]

ARCHIVE = Path(__file__).with_name("data") / "0006.tar.gz"
EXPECTED = "expected.json"
SECRET = "whsec_YSBzZWNyZXQgb2YgYSBob21lIHRoYXQgaXMgb2xk"
AGENTS: dict[str, Json] = {"worker": {"backend": False, "tools": ["handmade.py"]}}
FACT = "The spare key hangs behind the blue clock."
LATE = "Late, but whole."
DONE = "I have read the results."

DURATIONS = frozenset({"first_token_ms", "run_ms"})
"""Columns in milliseconds that are no moments."""
MOMENTS = frozenset({"created_at", "started_at", "completed_at", "updated_at", "timestamp", "stored_at", "expires_at"})
"""Fields of the API that change when the home is made younger."""


class Model:
    """The model of both Looms; answers to ``Wait.`` stop half-way until released, and are whole from then on."""

    def __init__(self, port: int = 0) -> None:
        """Args: port: where the tool ``change`` waits to be told how to go on."""
        self.release = threading.Event()
        self._calls = {
            "Read the letter.": (("letter", {}),),
            "Connect.": (("connect", {"shop": "north"}), ("count", {"n": 1})),
            "Pay them.": (("pay", {"amount": 70, "to": "them"}), ("count", {"n": 1})),
            "Change it.": (("change", {"port": port, "name": "old"}),),
            "Count.": (("count", {"n": 41}),),
        }

    def __call__(self, body: Json) -> Behaviour:
        last = body["messages"][-1]["content"][-1]
        if last["type"] == "tool_result":
            return Say(DONE)
        if last["text"] == "Wait." and not self.release.is_set():
            half = sse(answer(LATE))
            return Hang(self.release, half, after_bytes=len(half) // 2)
        if last["text"] == "Wait.":
            return Say(LATE)
        if last["text"] not in self._calls:
            return echo(body)
        calls = self._calls[last["text"]]
        number = len(body["messages"])
        return Say("I look.", [WireCall(f"toolu_{number}_{n}", name, given) for n, (name, given) in enumerate(calls)])


@dataclass(frozen=True)
class Old:
    """What the old Loom said of itself."""

    version: str
    """Of its schema."""
    turns: Json
    """Id to turn, of all that had ended."""
    messages: Json
    """Session to messages, of those without an unfinished turn."""
    events: Json
    """Id of a turn that had ended to its events, each as [id, type, data]."""
    found: list[Json]
    """What a search for the spare key found in the session ``done``."""
    error: Json
    """The one error of a tool, whole."""
    blob: str
    """The SHA-256 of the one large result."""
    delivery: Json
    """The one webhook that could not be delivered."""
    unfinished: dict[str, list[str]]
    """Session to the ids of its turns that had not ended, in order."""


def unpack(home: Path, *, hook: str) -> Old:
    """Make a home of the archive, as if it had been left a moment ago.

    Args:
        hook: where the webhooks go now.
    """
    home.mkdir(mode=0o700)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(home, filter="data")
    told = json.loads((home / EXPECTED).read_text())
    (home / EXPECTED).unlink()
    frozen_ms = told.pop("frozen_ms")
    with closing(sqlite3.connect(home / "loom.db")) as database, database:
        _make_younger(database, by_ms=int(time.time() * 1000) - frozen_ms)
        database.execute("UPDATE outbox SET url = ?", (hook,))
        version = database.execute("SELECT version_num FROM loom_version").fetchone()[0]
    return Old(version=version, **told)


def _make_younger(database: sqlite3.Connection, *, by_ms: int) -> None:
    """Move every moment: approvals expire after a day, large results after an hour, errors after a month."""
    moments = database.execute(
        "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c "
        "WHERE t.type = 'table' AND t.sql NOT LIKE 'CREATE VIRTUAL%' AND c.name LIKE '%\\_ms' ESCAPE '\\'"
    ).fetchall()
    for table, column in moments:
        if column not in DURATIONS:
            database.execute(f'UPDATE "{table}" SET "{column}" = "{column}" + ?', (by_ms,))


def still_says(now: Any, then: Any) -> bool:
    """True if all that was told then is told now; new fields may have come, and moments have moved."""
    if isinstance(then, dict):
        return isinstance(now, dict) and all(
            name in now and (name in MOMENTS or still_says(now[name], value)) for name, value in then.items()
        )
    if isinstance(then, list):
        return isinstance(now, list) and len(now) == len(then) and all(map(still_says, now, then))
    return bool(now == then)
