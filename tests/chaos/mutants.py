"""Seeded bugs: each breaks one promise in the process it is applied to, and a run that does not notice it is worthless.

They replace functions of Loom in memory, in processes of the harness alone.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Integer, and_, bindparam, delete, insert, select, update

from loom_worker.blobs.blobs import Blobs, Stored
from loom_worker.core import child_process
from loom_worker.core.errors import Conflict
from loom_worker.core.values.budgets import Account, Amount, Settlement
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import Reply, ReplyEvent, Request
from loom_worker.core.values.decisions import Decision
from loom_worker.core.values.facts import LearnedFacts
from loom_worker.core.values.judges import Verdict
from loom_worker.core.values.memory import MemoryState
from loom_worker.core.values.turns import Claim, NewTurn, Turn
from loom_worker.lanes.lease_renewer import HeldLease, LeaseRenewer
from loom_worker.llm import model
from loom_worker.llm.prices import with_cost
from loom_worker.memory import compress
from loom_worker.memory.dated import Noted
from loom_worker.memory.layers import turns as turns_of
from loom_worker.memory.pressure import Batch
from loom_worker.memory.summarize import CompressionRules
from loom_worker.service import service
from loom_worker.store import approvals, calls, claims, fact_changes, journal, memory, rows
from loom_worker.store import turn_statements as statements
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.prepared import PreparedStatement
from loom_worker.store.schema import calls as calls_table
from loom_worker.store.schema import steps, turns, verdicts
from loom_worker.turn import context
from tests.chaos.agent_mutants import AGENT_MUTANTS
from tests.chaos.run_mutants import RUN_MUTANTS


def apply(name: str) -> None:
    """Let this process have that bug, or those, with commas between them."""
    for one in name.split(","):
        MUTANTS[one][1]()


def _no_fence() -> None:
    """An overtaken worker writes as if it still owned its turn: no fence, lost lease or key of the journal stops it."""

    def lose_quietly(keeper: LeaseRenewer, hold: HeldLease) -> None:
        keeper._drop(hold)

    anyones = (turns.c.id == bindparam("our_id"), bindparam("our_fence", type_=Integer) >= 0)
    statements.IS_OURS = anyones  # type: ignore[assignment]
    statements.STILL_OURS = PreparedStatement(select(turns.c.cancel).where(*anyones))
    statements.OURS_WITH_SESSION = PreparedStatement(statements.WITH_SESSION.where(*anyones))
    statements.INSERT_STEPS = PreparedStatement(insert(steps).prefix_with("OR REPLACE"), columns=steps.c.keys())
    journal._INSERT_CALLS = journal._INSERT_CALLS.prefix_with("OR REPLACE")
    LeaseRenewer._lose = lose_quietly  # type: ignore[method-assign,assignment]


def _wrong_order() -> None:
    """The newest turn of a lane runs first."""
    head: Any = statements.HEAD.statement
    statements.HEAD = PreparedStatement(head.order_by(None).order_by(turns.c.seq.desc()))


def _lost_outbox() -> None:
    """Every third webhook is not written with the end of its turn."""
    finish, counter = journal.Journal.finish, itertools.count()

    def forgetful(self: journal.Journal, claim: Claim, final: journal.Final) -> Sequence[Turn]:
        return finish(self, claim, final if next(counter) % 3 else replace(final, delivery=None))

    journal.Journal.finish = forgetful  # type: ignore[method-assign]


def _no_idempotency() -> None:
    """A repeated key is a new turn."""
    requests: Any = service
    submit = requests.submit

    def forgetful(database: Any, limits: Any, session: Any, new: NewTurn, terms: Any, *, now_ms: int) -> Any:
        return submit(database, limits, session, replace(new, idempotency_key=None), terms, now_ms=now_ms)

    requests.submit = forgetful


def _repeated_tool() -> None:
    """A call is run by everyone who was told of it."""

    def claim(self: calls.Calls, turn_id: str, position: int, _send: int, *, worker: str, **times: Any) -> Call | None:
        here = and_(calls_table.c.turn_id == turn_id, calls_table.c.position == position)
        with self._database.write(lock=WHOLE) as tx:
            taken = {"status": "running", "worker": worker, "started_ms": times["now_ms"]}
            tx.execute(update(calls_table).where(here).values(**taken))
            row = tx.execute(select(calls_table).where(here)).mappings().first()
        return None if row is None else rows.call(row)

    calls.Calls.claim = claim  # type: ignore[method-assign,assignment]


def _no_budget() -> None:
    """All of a session's history goes to the model."""
    room: Any = context
    fit = room.fit

    def generous(layers: Any, *, budget_tokens: int, **rules: Any) -> Any:
        return fit(layers, budget_tokens=100 * budget_tokens, **rules)

    room.fit = generous


def _memory_hole() -> None:
    """The last turn of what leaves L1 is in no summary."""
    compressed = compress._compressed

    def hasty(state: MemoryState, found: Batch, rules: CompressionRules) -> Any:
        read = turns_of(found.messages)[:-1] or [found.messages]
        step = compressed(state, replace(found, messages=tuple(chain(*read))), rules)
        return replace(step, after=replace(step.after, first_n=found.messages[-1].n + 1))

    compress._compressed = hasty


def _orphaned_child() -> None:
    """A child process does not notice the death of its worker."""
    command, mark = child_process.module_command, "import main; main("
    planted = "import main; from loom_worker.tools import child_main; child_main._die_with_worker = int; main("

    def deaf(module: str, *flags: str) -> list[str]:
        made = command(module, *flags)
        is_tools = module == "loom_worker.tools.child_main"
        assert any(mark in part for part in made)
        return [part.replace(mark, planted) for part in made] if is_tools else made

    child_process.module_command = deaf


def _deaf_ear() -> None:
    """Whatever a person says is taken for a yes."""
    changes = approvals._changes

    def agreed(decision: Decision, now_ms: int) -> dict[str, Any]:
        return changes(replace(decision, verdict="approve"), now_ms)

    approvals._changes = agreed


def _second_thought() -> None:
    """A call that was decided on can be decided on again."""
    waiting = approvals._waiting

    def patient(tx: Connection, turn: Turn, call_id: str) -> Call:
        try:
            return waiting(tx, turn, call_id)
        except Conflict:
            return next(call for call in turn.calls if call.id == call_id)

    approvals._waiting = patient


def _cut_result() -> None:
    """Of every second large result the end is not kept."""
    put, counter = Blobs.put, itertools.count()

    def hasty(self: Blobs, ref: str, data: bytes) -> Stored:
        return put(self, ref, data if next(counter) % 2 else data[:-1])

    Blobs.put = hasty  # type: ignore[method-assign]


def _forgotten_verdict() -> None:
    """A worker that takes up a turn whose verdicts are all there forgets them, once for each turn."""
    read, forgotten = claims.read_verdicts, set[str]()

    def forgetful(tx: Connection, turn_id: str) -> tuple[Verdict, ...]:
        found = read(tx, turn_id)
        if not found or turn_id in forgotten or any(verdict.is_open for verdict in found):
            return found
        forgotten.add(turn_id)
        tx.execute(delete(verdicts).where(verdicts.c.turn_id == turn_id))
        return ()

    claims.read_verdicts = forgetful


def _generous_refund() -> None:
    """What was set aside for a call is given back twice."""
    changes = Settlement.changes

    def generous(self: Settlement, now_ms: int) -> dict[Account, Amount]:
        found = changes(self, now_ms)
        for held in self.held:
            found |= {account: found[account] - held.grant.amount for account in held.accounts}
        return found

    Settlement.changes = generous  # type: ignore[method-assign]


def _forgotten_run() -> None:
    """Nobody writes down that a worker had the turn and died."""

    def forgetful(row: dict[str, Any], now_us: int) -> dict[str, Any]:
        return dict(row["trace"] or {})

    claims._trace_of = forgetful


def _forgotten_fact() -> None:
    """A summary by date is stored without the first of its facts."""
    learn = fact_changes.learn

    def forgetful(tx: Connection, session: Any, learned: LearnedFacts, *, now_ms: int) -> None:
        learn(tx, session, replace(learned, statements=learned.statements[1:]), now_ms=now_ms)

    memory.learn = forgetful  # type: ignore[attr-defined]


def _repeated_summary() -> None:
    """Memory notes the middle of a summary by date as its end."""
    summarized = compress._summarized

    def hasty(state: MemoryState, noted: Noted, rules: CompressionRules, *, now_ms: int) -> Any:
        step = summarized(state, noted, rules, now_ms=now_ms)
        middle = noted.messages[len(noted.messages) // 2].n
        return replace(step, after=replace(step.after, dated_n=middle))

    compress._summarized = hasty


def _other_price() -> None:
    """What a model said that stands in for another one is booked as that one's, at its price."""
    ask = model.Fallbacks.reply

    def hasty(self: model.Fallbacks, request: Request) -> Iterator[ReplyEvent]:
        for event in ask(self, request):
            yield with_cost(replace(event, model=self.name)) if isinstance(event, Reply) else event

    model.Fallbacks.reply = hasty  # type: ignore[method-assign]


MUTANTS: dict[str, tuple[Sequence[str], Callable[[], None]]] = {
    "no_fence": (("I2", "I4"), _no_fence),
    "wrong_order": (("I3",), _wrong_order),
    "lost_outbox": (("I5",), _lost_outbox),
    "no_idempotency": (("I1",), _no_idempotency),
    "repeated_tool": (("I8",), _repeated_tool),
    "no_budget": (("I7",), _no_budget),
    "memory_hole": (("I11",), _memory_hole),
    "orphaned_child": (("I9",), _orphaned_child),
    "deaf_ear": (("I12",), _deaf_ear),
    "second_thought": (("I12",), _second_thought),
    "cut_result": (("I13",), _cut_result),
    "forgotten_verdict": (("I8",), _forgotten_verdict),
    "generous_refund": (("I15",), _generous_refund),
    "forgotten_fact": (("I23",), _forgotten_fact),
    "repeated_summary": (("I23",), _repeated_summary),
    "forgotten_run": (("I16",), _forgotten_run),
    "other_price": (("I9",), _other_price),
    **RUN_MUTANTS,
    **AGENT_MUTANTS,
}
"""Name to the invariants of which at least one must be seen broken, and how the bug is planted."""
