"""Rows as the tests of the store need them."""

from dataclasses import replace
from typing import Any

from sqlalchemy import func, select

from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.budgets import usd
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import ChatMessage, Role, Usage
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.sessions import Message, NewSession
from loom_worker.core.values.turns import Claim, Ending, NewTurn, Step, Turn
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import MARK_DUE, Entries, Final, Journal
from loom_worker.store.memory import Memories, MemoryClaim
from loom_worker.store.schema import metadata
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import submit

NOW_MS = 1_800_000_000_000
WORKSPACE = "acme"
PROGRESS: Json = {"usage": Usage().as_json(), "run_ms": 5, "patterns": [], "first_token_ms": None}
SPENT = Usage(input_tokens=10, output_tokens=5, cost_usd=usd(0.25), llm_calls=1)


def submitted(database: Database, session: str = "s1", *, workspace: str = WORKSPACE, **fields: Any) -> Turn:
    """A turn in the database."""
    new = NewTurn(fields.pop("input", "hello"), **fields)
    turn, _ = submit(database, LimitSettings(), (workspace, NewSession(id=session)), new, now_ms=NOW_MS)
    return turn


def claimed(database: Database, lane: str, worker: str = "w1") -> Claim:
    """The claim of the lane's next turn; there must be one."""
    claim = Claims(database).claim(lane, worker=worker, now_ms=NOW_MS + 10)
    assert isinstance(claim, Claim), claim
    return claim


def running(database: Database, session: str = "s1", **fields: Any) -> Claim:
    """A turn that was submitted and claimed."""
    return claimed(database, submitted(database, session, **fields).lane)


def call(position: int = 0, **fields: Any) -> Call:
    """A tool call that was sent once."""
    return Call(
        id=f"toolu_{position}",
        name="look",
        arguments={"n": position},
        position=position,
        reply_n=1,
        **{"sends": 1, "sent_ms": NOW_MS, **fields},
    )


def message(number: int, claim: Claim, **fields: Any) -> Message:
    """A message of a turn."""
    chat = ChatMessage(role="user", text=f"text {number}")
    made = Message(f"msg_{number:04}", claim.turn.session_id, claim.turn.id, chat, token_count=2, created_ms=NOW_MS)
    return replace(made, **fields)


def delivery(number: int, claim: Claim, **fields: Any) -> Delivery:
    """A delivery that is due at NOW_MS."""
    made = Delivery(
        id=f"whd_{number:04}",
        workspace=claim.turn.workspace,
        turn_id=claim.turn.id,
        url="https://example.com/hook",
        secret=None,
        body="{}",
        status="pending",
        attempts=0,
        created_ms=NOW_MS,
        next_ms=NOW_MS,
    )
    return replace(made, **fields)


def final(usage: Usage = SPENT, **fields: Any) -> Final:
    """The end of a turn that went well."""
    progress = {**PROGRESS, "usage": usage.as_json(), "completed_ms": NOW_MS + 100}
    usual = {"ending": Ending("completed", output_text="done"), "progress": progress, "spent": {"m1": usage}}
    return Final(**{**usual, **fields})


def said(database: Database, session: str = "s1", *, turns: int, workspace: str = WORKSPACE, size: int = 2) -> str:
    """A session with turns of so many messages: the user's, then the assistant's. Returns its lane."""
    lane = ""
    for _ in range(turns):
        claim = running(database, session, workspace=workspace)
        lane = claim.turn.lane
        answers: list[Role] = ["assistant"] * (size - 1)
        texts = [ChatMessage(role, text=f"{session} {claim.turn.seq} {role}") for role in ("user", *answers)]
        messages = tuple(message(0, claim, id=new_id("msg_"), chat=chat) for chat in texts)
        Journal(database).finish(claim, final(said=messages))
    return lane


def mark_due(database: Database, lane: str, *, due_ms: int = NOW_MS) -> None:
    """Make the memory of a lane due, as the end of a turn does."""
    with database.write(lock=WHOLE) as tx:
        tx.execute(MARK_DUE, {"our_lane": lane, "now_ms": due_ms})


def held(database: Database, lane: str, worker: str = "w1") -> MemoryClaim:
    """The claim of a worker on a memory that was due before, or is now; no other worker is alive."""
    mark_due(database, lane)
    claim = Memories(database).claim(lane, worker=worker, alive=frozenset(), now_ms=NOW_MS)
    assert claim is not None
    return claim


def purged(database: Database, *, limit: int = 200) -> int:
    """Remove all rows of deleted sessions; return in how many batches."""
    sessions, batches = Sessions(database), 0
    while sessions.purge(limit=limit):
        batches += 1
    return batches


def filled(database: Database) -> dict[str, int]:
    """How many rows each table has that has any."""
    return {name: rows for name, rows in counts(database).items() if rows}


def counts(database: Database) -> dict[str, int]:
    """How many rows each table has, but for those that only grow, the audit and what is counted, and what is folded."""
    with database.read() as tx:
        return {
            name: tx.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in metadata.tables.items()
            if name not in ("audit", "audit_chains", "audit_inbox", "metric_values", "workspace_depths", "depth_deltas")
        }


def plain_turn(database: Database, session: str = "s1") -> None:
    """A question as a client asks it, and an answer without tools: all that the store does for such a turn."""
    Sessions(database).asked(WORKSPACE, session, "default")
    new = (WORKSPACE, NewSession(id=session))
    turn, _ = submit(database, LimitSettings(), new, NewTurn("How many orders are there?"), now_ms=NOW_MS)
    claim = claimed(database, turn.lane)
    Memories(database).load(turn.lane, limit=40, claim=claim)
    texts = (ChatMessage("user", "How many orders are there?"), ChatMessage("assistant", "There are 20,353. " * 8))
    said = tuple(message(0, claim, id=new_id("msg_"), chat=text) for text in texts)
    steps = (Step(1, "matched", {"ids": ["a"]}, 1), Step(2, "reply", {"text": "There are 20,353."}, 1))
    Journal(database).finish(claim, final(said=said, entries=Entries(steps=steps)))
