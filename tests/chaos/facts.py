"""What the database says once the system is at rest: read with sqlite3 alone, read-only, past Loom's own store.

Only the last step, from a turn's row to the Turn that the API shows, is Loom's (``store.rows``): the checks compare
its JSON with what clients and receivers were shown.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import JSON

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.audit import Link, first_break
from loom_worker.core.values.calls import Call
from loom_worker.core.values.turns import Turn
from loom_worker.store import rows
from loom_worker.store.schema import metadata
from tests.chaos.marks import mark_of, replies_in
from tests.chaos.run_facts import AUDITED, RunFact, runs_of

Row = dict[str, Any]
T = TypeVar("T")
K = TypeVar("K")

ORPHANS = {
    name: f"SELECT {key} FROM {name} WHERE turn_id NOT IN (SELECT id FROM turns)"
    for name, key in {
        "steps": "turn_id || '/' || n",
        "calls": "turn_id || '/' || position",
        "messages": "id",
        "outbox": "id",
        "usage": "turn_id",
        "verdicts": "turn_id || '/' || reply_n || '/' || position",
        "spans": "n",
    }.items()
}
"""Rows of turns that do not exist: messages and usage carry no foreign key that would forbid them."""
_OPEN = "status IN ('queued', 'in_progress', 'requires_action')"
MISCOUNTED = f"""
SELECT 'session ' || lane, queue_depth, (SELECT count(*) FROM turns WHERE turns.lane = sessions.lane AND turns.{_OPEN})
  AS found FROM sessions WHERE queue_depth <> found
UNION ALL
SELECT 'workspace ' || workspace, sum(turns) AS summed,
  (SELECT count(*) FROM turns WHERE turns.workspace = depths.workspace AND {_OPEN}) AS found
FROM (SELECT workspace, turns FROM workspace_depths UNION ALL SELECT workspace, turns FROM depth_deltas) AS depths
GROUP BY workspace HAVING summed <> found
"""
"""Sessions and workspaces whose counted turns are not their rows."""
UNAUDITED = (
    "SELECT id, found FROM (SELECT id, (SELECT count(*) FROM audit WHERE audit.workspace = turns.workspace"
    " AND turn_id = turns.id AND action = 'turn.ended') + (SELECT count(*) FROM audit_inbox AS inbox"
    " WHERE inbox.workspace = turns.workspace AND turn_id = turns.id AND action = 'turn.ended') AS found"
    " FROM turns WHERE completed_ms IS NOT NULL) WHERE found <> 1"
)
"""Turns that have ended without a row of the audit, or with two."""
ORPHANS["usage"] += " AND turn_id <> ''"  # a summary is no turn's


@dataclass(frozen=True)
class TurnFact:
    """A turn with everything that hangs on it."""

    row: Row
    calls: tuple[Call, ...]
    steps: tuple[Row, ...]
    messages: tuple[Row, ...]
    """In the order they were written."""
    deliveries: tuple[Row, ...]
    usage: tuple[Row, ...]
    """Of the ledger, in the order they were written."""
    verdicts: tuple[Row, ...] = ()
    """By answer and judge."""
    later: tuple[Row, ...] = ()
    """Spans that are stored as such."""

    @property
    def id(self) -> str:
        """The turn's id."""
        return str(self.row["id"])

    @property
    def seq(self) -> int:
        """Its place in its session."""
        return int(self.row["seq"])

    @property
    def status(self) -> str:
        """As the API names it."""
        return str(self.row["status"])

    @cached_property
    def mark(self) -> str:
        """The mark in its input."""
        return mark_of(self.row["input"], self.row["agent"])

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.mark or '(no mark)'} {self.id} (seq {self.seq} of {self.row['session_id']})"

    @cached_property
    def turn(self) -> Turn:
        """As Loom reads it."""
        return rows.turn(self.row, calls=self.calls)

    @cached_property
    def shown(self) -> Row:
        """The Turn of the HTTP API, as a client parses it."""
        shown: Row = json.loads(json.dumps(self.turn.as_json()))
        return shown

    @property
    def questions(self) -> int:
        """Replies of the model that asked for calls which need a person."""
        return len({call.reply_n for call in self.calls if call.approval is not None})

    @property
    def replies(self) -> tuple[Row, ...]:
        """What the journal has of the model's replies."""
        return tuple(step["payload"] for step in self.steps if step["kind"] == "reply")

    @property
    def judged(self) -> tuple[Row, ...]:
        """What the journal has of answers that were judged, in their order."""
        return tuple(step["payload"] for step in self.steps if step["kind"] == "judged")

    @cached_property
    def kept(self) -> frozenset[tuple[str, int]]:
        """The model's replies that the journal has: mark and number of each."""
        texts = [reply["text"] for reply in self.replies]
        answer = self.row["output_text"] or ""  # the journal has no text for the reply that is the answer
        return frozenset(name for text in texts for name in replies_in(answer if text is None else text))

    def nth_of(self, reply_n: int) -> int:
        """The number of a reply as the model server knows it, by its step; 0 if the journal has no such reply."""
        for step in self.steps:
            if step["n"] == reply_n and step["kind"] == "reply":
                text = step["payload"]["text"]
                *_, (_, nth) = ("", 0), *replies_in(self.row["output_text"] or "" if text is None else text)
                return nth
        return 0


@dataclass(frozen=True)
class Facts:
    """The whole database."""

    turns: tuple[TurnFact, ...]
    """By session, in the order of ``seq``."""
    sessions: tuple[Row, ...]
    messages: tuple[Row, ...]
    """All of them, in the order they were written."""
    memories: Mapping[str, Row]
    """By lane; a session that was never compressed has none."""
    snapshots: Mapping[str, tuple[Row, ...]]
    """By lane, in the order of the conversation."""
    dated: Mapping[str, tuple[Row, ...]]
    """Summaries by date by lane, in the order of the conversation."""
    learned: Mapping[str | None, tuple[Row, ...]]
    """What was learned of users, by the lane that said it first."""
    embedded: frozenset[int]
    """Numbers of the messages that have a vector."""
    memory_charges: Mapping[tuple[str, str], tuple[Row, ...]]
    """What summaries and vectors cost, by workspace and session."""
    deliveries: tuple[Row, ...]
    blobs: Mapping[str, Row]
    """Large results by their reference."""
    spending: Mapping[tuple[str, str, str], Row]
    """What budgets have as spent or set aside, by level, key and window."""
    faults: tuple[str, ...]
    """What SQLite itself finds wrong, and rows that belong to no turn."""
    runs: tuple[RunFact, ...] = ()
    """Of workflows."""
    agent_messages: tuple[Row, ...] = ()
    """Between agents, in the order in which they came."""
    passed: tuple[Row, ...] = ()
    """Large results that sessions were allowed to read that did not make them: ``ref`` and ``lane`` of each."""

    @cached_property
    def by_id(self) -> Mapping[str, TurnFact]:
        """Turns by id."""
        return {turn.id: turn for turn in self.turns}

    @cached_property
    def run_by_id(self) -> Mapping[str, RunFact]:
        """Runs by id."""
        return {run.id: run for run in self.runs}

    @cached_property
    def turns_by_run(self) -> Mapping[str, tuple[TurnFact, ...]]:
        """The turns that each run has begun."""
        return grouped((turn for turn in self.turns if turn.row["run_id"]), lambda turn: turn.row["run_id"])

    @cached_property
    def by_mark(self) -> Mapping[str, tuple[TurnFact, ...]]:
        """Turns by their mark: one, or something is wrong."""
        return grouped(self.turns, lambda turn: turn.mark)

    @cached_property
    def by_lane(self) -> Mapping[str, tuple[TurnFact, ...]]:
        """Turns by session, in the order of ``seq``."""
        return grouped(self.turns, lambda turn: turn.row["lane"])

    @cached_property
    def messages_by_lane(self) -> Mapping[str, tuple[Row, ...]]:
        """Messages by session, in the order they were written."""
        return grouped(self.messages, lambda message: message["lane"])


def read_facts(home: Path) -> Facts:
    """Read ``loom.db``.

    Raises:
        sqlite3.Error: there is none, or it cannot be read.
    """
    with closing(sqlite3.connect(f"file:{home / 'loom.db'}?mode=ro", uri=True, timeout=10)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")  # one snapshot of all tables
        tables = {name: tuple(_rows(connection, name, order)) for name, order in _ORDERS.items()}
        audit = tuple(map(dict, connection.execute(AUDITED)))
        faults = tuple(_faults(connection))
    said = {message["id"]: message["content"] for message in tables["messages"]}
    for turn in tables["turns"]:
        if turn["answer_id"] is not None:  # what was said before the answer, then the message that is it
            turn["output_text"] = (turn["output_text"] or "") + said.get(turn["answer_id"], "")
    hanging = {name: grouped(tables[name], lambda row: row["turn_id"]) for name in ORPHANS}
    return Facts(
        turns=tuple(_turn(row, hanging) for row in tables["turns"]),
        sessions=tables["sessions"],
        messages=tables["messages"],
        memories={row["lane"]: row for row in tables["memory"]},
        snapshots=grouped(tables["memory_snapshots"], lambda row: row["lane"]),
        dated=grouped(tables["dated_summaries"], lambda row: row["lane"]),
        learned=grouped(tables["facts"], lambda row: row["lane"]),
        embedded=frozenset(row["n"] for row in tables["message_vectors"]),
        memory_charges=grouped(
            (row for row in tables["usage"] if not row["turn_id"]),
            lambda row: (row["workspace"], row["session_id"]),
        ),
        deliveries=tables["outbox"],
        blobs={row["id"]: row for row in tables["blobs"]},
        spending={(row["level"], row["key"], row["window"]): row for row in tables["spending"]},
        faults=faults,
        runs=runs_of(tables, audit),
        agent_messages=tables["agent_messages"],
        passed=tables["blob_grants"],
    )


_ORDERS = {
    "sessions": "lane",
    "turns": "lane, seq",
    "steps": "turn_id, n",
    "calls": "turn_id, position",
    "messages": "n",
    "memory": "lane",
    "memory_snapshots": "lane, from_n",
    "dated_summaries": "lane, from_n, id",
    "facts": "id",
    "message_vectors": "n",
    "outbox": "id",
    "usage": "n",
    "blobs": "id",
    "verdicts": "turn_id, reply_n, position",
    "spending": "level, key, window",
    "spans": "n",
    "workflow_runs": "id",
    "run_stages": "run_id, n",
    "run_events": "run_id, n",
    "agent_messages": "n",
    "blob_grants": "ref, lane",
}


def _turn(row: Row, hanging: Mapping[str, Mapping[Any, tuple[Row, ...]]]) -> TurnFact:
    mine = {name: groups.get(row["id"], ()) for name, groups in hanging.items()}
    return TurnFact(
        row=row,
        calls=tuple(rows.call(each) for each in mine["calls"]),
        steps=mine["steps"],
        messages=mine["messages"],
        deliveries=tuple(delivery for delivery in mine["outbox"] if delivery["run_id"] is None),
        usage=mine["usage"],
        verdicts=mine["verdicts"],
        later=mine["spans"],
    )


def _rows(connection: sqlite3.Connection, table: str, order: str) -> Iterator[Row]:
    coded = [column.name for column in metadata.tables[table].columns if isinstance(column.type, JSON)]
    for found in connection.execute(f"SELECT * FROM {table} ORDER BY {order}"):
        row = dict(found)
        for name in coded:
            row[name] = None if row[name] is None else json.loads(row[name])
        yield row


def _faults(connection: sqlite3.Connection) -> Iterator[str]:
    for (found,) in connection.execute("PRAGMA integrity_check"):
        if found != "ok":
            yield f"integrity_check: {found}"
    for found in connection.execute("PRAGMA foreign_key_check"):
        yield f"foreign_key_check: row {found[1]} of {found[0]} has no {found[2]}"
    for table, query in ORPHANS.items():
        for (key,) in connection.execute(query):
            yield f"orphan: {table} {key} belongs to no turn"
    for turn_id, count in connection.execute(UNAUDITED):
        yield f"audit: turn {turn_id} has ended and has {count} rows"
    for whose, depth, found in connection.execute(MISCOUNTED):
        yield f"depth: {whose} is said to have {depth} unfinished turns, and has {found}"
    yield from _broken_chains(connection)


def _broken_chains(connection: sqlite3.Connection) -> Iterator[str]:
    for workspace, seq, digest in connection.execute("SELECT workspace, last_seq, last_hash FROM audit_chains"):
        rows = connection.execute("SELECT * FROM audit WHERE workspace = ? ORDER BY seq", (workspace,))
        broken = first_break(map(dict, rows), workspace, Link(), Link(seq, digest))
        if broken is not None:
            yield f"audit: row {broken.seq} of {workspace}: {broken.why}"


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, tuple[T, ...]]:
    """Items by what they have in common, in their order."""
    groups: dict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return {name: tuple(group) for name, group in groups.items()}
