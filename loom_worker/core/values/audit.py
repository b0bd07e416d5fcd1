"""The audit: who did what, in rows whose hashes form a chain. It holds ids, names of tools and figures, never texts.

The API has other names for some of the columns that the hashes cover: ``AuditRow.as_json`` has both.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loom_worker.core.values.budgets import NANO, nano
from loom_worker.core.values.calls import Call
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.runs import Run
from loom_worker.core.values.tenants import LOCAL
from loom_worker.core.values.turns import Turn

START = "0" * 64
"""What stands for the hash of the row before the first one."""
NOT_RUN = "(not run)"
"""Stands for the tools of calls that were never sent: their name may be any text of the model."""
TURN_ENDED = "turn.ended"
RUN_ENDED = "run.ended"
INPUT_BLOCKED, INPUT_GUARDED = "input.blocked", "input.guarded"
ACTIONS = (
    TURN_ENDED,
    RUN_ENDED,
    "run.decided",
    "approval.decided",
    "session.deleted",
    "user.deleted",
    "key.created",
    "key.rotated",
    "key.revoked",
    "token.created",
    "token.revoked",
    "workspace.changed",
    "workspace.disabled",
    "workspace.enabled",
    "agent.updated",
    "agent.activated",
    "schedule.changed",
    "schedule.started",
    "learned.imported",
    "learned.activated",
    "learned.rolled_back",
    "learned.erased",
    "pairing.created",
    "pairing.deleted",
    "delivery.replayed",
    "message.replayed",
    "fact.learned",
    "fact.closed",
    "fact.corrected",
    "fact.forgotten",
    *(INPUT_BLOCKED, INPUT_GUARDED),
)
"""All that is written to the audit."""
ID_PREFIX = "aud_"
SEQ_DIGITS = 12
_HASH_DIGITS = 14
_SHOWN_AS_STORED = (
    *("workspace", "user", "channel", "agent", "model", "session_id", "turn_id"),
    *("subject", "status", "reason", "duration_ms"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """What happened, before it has its place in the chain; ``None`` where there is no such thing.

    Fields are called as the columns are, whose names the hashes cover: renaming one breaks every chain.
    """

    workspace: str
    at_ms: int
    action: str
    key_id: str | None = None
    user: str | None = None
    """Whose session it is, else whom the key acts for."""
    channel: str | None = None
    agent: str | None = None
    model: str | None = None
    session_id: str | None = None
    turn_id: str | None = None
    subject: str | None = None
    """The id of what was acted on, if it is no session or turn: of a key, a user, a call, a delivery, a message."""
    status: str | None = None
    reason: str | None = None
    tools: Sequence[Json] = ()
    decisions: Sequence[Json] = ()
    tokens: int | None = None
    cost_nano: int | None = None
    duration_ms: int | None = None

    def columns(self) -> dict[str, Any]:
        """As they are stored: lists as JSON text, so that the hash covers every character of them."""
        values = {name: getattr(self, name) for name in AuditEntry.__slots__}
        return {**values, "tools": _text(self.tools), "decisions": _text(self.decisions)}


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry in its place."""

    seq: int
    """1, 2, 3… in the chain of its workspace."""
    entry: AuditEntry
    previous_hash: str
    hash: str

    def brief(self) -> "AuditRow":
        return self

    @property
    def id(self) -> str:
        """``aud_``, 12 digits of ``seq``, by which it sorts, and 14 of ``hash``, which names the workspace too."""
        return f"{ID_PREFIX}{self.seq:0{SEQ_DIGITS}d}{self.hash[:_HASH_DIGITS]}"

    def as_json(self) -> Json:
        """The AuditRow of the HTTP API: all columns can be computed from it, so that clients can verify the chain."""
        entry = self.entry
        cost_usd = None if entry.cost_nano is None else float(entry.cost_nano * NANO)
        return {
            "id": self.id,
            "object": "audit.row",
            "seq": self.seq,
            "at": rfc3339(entry.at_ms),
            "kind": entry.action,
            "actor": entry.key_id,
            **{name: getattr(entry, name) for name in _SHOWN_AS_STORED},
            "tools": list(entry.tools),
            "decisions": list(entry.decisions),
            "usage": None if entry.tokens is None else {"tokens": entry.tokens, "cost_usd": cost_usd},
            "prev_hash": self.previous_hash,
            "hash": self.hash,
        }


@dataclass(frozen=True, slots=True)
class Link:
    """One place of a chain: the number of a row, and its hash."""

    seq: int = 0
    hash: str = START


@dataclass(frozen=True, slots=True)
class BrokenChain:
    """Where a chain does not hold."""

    workspace: str
    seq: int
    why: str


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which rows are listed; None lets all pass."""

    action: str | None = None
    user: str | None = None
    agent: str | None = None
    session_id: str | None = None
    turn_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    """The first moment that is too late."""


def hash_of(columns: Mapping[str, Any]) -> str:
    """SHA-256 of a row, its ``previous_hash`` included and its ``hash`` left out.

    Over JSON with sorted members and without those that are null: a column that is added later leaves it as it is.
    """
    values = {name: value for name, value in columns.items() if value is not None and name != "hash"}
    return hashlib.sha256(_canonical(values).encode("ascii")).hexdigest()


def first_break(rows: Iterable[Mapping[str, Any]], workspace: str, start: Link, head: Link) -> BrokenChain | None:
    """The first place at which a chain does not hold; None if it is whole.

    Args:
        rows: the columns of a workspace's rows, by seq.
        start: the last row that was removed with age; ``Link()``: none was.
        head: the last row that was ever written.
    """
    last = start
    for row in rows:
        if row["seq"] != last.seq + 1:
            return BrokenChain(workspace, last.seq + 1, f"row {last.seq + 1} is missing")
        if row["previous_hash"] != last.hash:
            return BrokenChain(workspace, last.seq + 1, "it does not follow the row before it")
        if row["hash"] != hash_of(row):
            return BrokenChain(workspace, last.seq + 1, "its hash is not that of its columns")
        last = Link(row["seq"], row["hash"])
    if last.seq < head.seq:
        return BrokenChain(workspace, last.seq + 1, f"rows {last.seq + 1} to {head.seq} are missing at the end")
    return None if last == head else BrokenChain(workspace, last.seq, "the chain ends otherwise than its head says")


def turn_ended(turn: Turn, *, user: str | None, model: str | None = None, decisions: Sequence[Json] = ()) -> AuditEntry:
    """The row of a turn that has ended.

    Args:
        turn: as every reader finds it, with all of its calls.
        user: of its session.
        model: that answered; several are joined.
        decisions: on the answer; those on the input and on calls are read from the turn.
    """
    used = turn.usage
    return AuditEntry(
        workspace=turn.workspace,
        at_ms=turn.completed_ms or 0,
        action=TURN_ENDED,
        key_id=turn.key_id or LOCAL.key_id,
        user=user,
        channel=None if turn.channel is None else turn.channel.name,
        agent=turn.agent,
        model=model,
        session_id=turn.session_id,
        turn_id=turn.id,
        status=turn.status,
        reason=turn.reason,
        tools=tool_counts(turn.calls),
        decisions=(*(turn.guard or ()), *_of_calls(turn.calls), *decisions),
        tokens=used.tokens,
        cost_nano=None if used.cost_usd is None else nano(used.cost_usd),
        duration_ms=turn.run_ms,
    )


def run_ended(run: Run) -> AuditEntry:
    """The row of a workflow's run that has ended; its turns have rows of their own, with what they cost."""
    return AuditEntry(
        workspace=run.workspace,
        at_ms=run.completed_ms or 0,
        action=RUN_ENDED,
        key_id=run.key_id or LOCAL.key_id,
        user=run.user,
        agent=run.workflow,
        subject=run.id,
        status=run.status,
        reason=run.reason,
        duration_ms=run.duration_ms,
    )


def _of_calls(calls: Sequence[Call]) -> Iterator[Json]:
    yield from approval_decisions(calls)
    for call in calls:
        yield from call.guard or ()


def tool_counts(calls: Iterable[Call]) -> tuple[Json, ...]:
    """How often each tool was called, by name, with how it ended.

    A tool that was neither run nor shown to a person counts as NOT_RUN.
    """
    found: dict[str, Counter[str]] = {}
    for call in calls:
        is_known = call.sends > 0 or call.approval is not None
        found.setdefault(call.name if is_known else NOT_RUN, Counter())[call.status] += 1
    return tuple({"name": name, "calls": ends.total(), "outcomes": dict(ends)} for name, ends in sorted(found.items()))


def approval_decisions(calls: Iterable[Call]) -> tuple[Json, ...]:
    """What was said to calls that needed a person."""
    asked = [call for call in calls if call.approval is not None]
    return tuple({"kind": "approval", "name": call.name, "outcome": call.approval} for call in asked)


def _text(items: Sequence[Json]) -> str | None:
    return _canonical(list(items)) if items else None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_foreign)


def _foreign(value: Any) -> Json:
    """SQLite keeps bytes in any column; no column of ours is an object, so they equal nothing that we write."""
    return {"bytes": bytes(value).hex()}
