"""What a turn did: a step that is stored is not done again, and the turn's end is one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, update

from loom_worker.core import crash_points
from loom_worker.core.errors import Interrupted
from loom_worker.core.values.audit import AuditEntry, turn_ended
from loom_worker.core.values.budgets import Settlement
from loom_worker.core.values.calls import CANCELLED, OPEN_CALL, Call
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.children import OutputRef
from loom_worker.core.values.ids import now_ms as moment_ms
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import OPEN_VERDICT, Verdict, cost_by_model
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.patterns import PatternUse
from loom_worker.core.values.sessions import Message
from loom_worker.core.values.traces import NO_TRACE, Interval, TurnTrace
from loom_worker.core.values.turns import CancelAction, Claim, Ending, Step, Turn
from loom_worker.store import rows
from loom_worker.store import turn_statements as statements
from loom_worker.store.audit import append
from loom_worker.store.budgets import forget, settle
from loom_worker.store.children import cancel_children
from loom_worker.store.claims import read_verdicts
from loom_worker.store.database import Database
from loom_worker.store.dialect import number_of, upsert
from loom_worker.store.engines.engine import WHOLE, Lock
from loom_worker.store.fence import fenced_update, final_update
from loom_worker.store.ledger import Charge, ask_used, enter, total_with
from loom_worker.store.outbox import enqueue_delivery
from loom_worker.store.patterns import enter_uses
from loom_worker.store.prepared import PendingRow
from loom_worker.store.schema import calls, verdicts
from loom_worker.store.tables import memory
from loom_worker.store.trace_outbox import enqueue_trace
from loom_worker.store.verdicts import insert_verdicts

_INSERT_CALLS = insert(calls)
_CANCEL_CALLS = (
    update(calls)
    .where(calls.c.turn_id == bindparam("our_id"), calls.c.status.in_(OPEN_CALL))
    # A late worker may have begun one since this turn's owner looked: the row must say what the webhook says.
    .values(status="cancelled", started_ms=None, finished_ms=bindparam("now_ms"), content=CANCELLED)
)
_CANCEL_VERDICTS = (
    update(verdicts)
    .where(verdicts.c.turn_id == bindparam("our_id"), verdicts.c.status.in_(OPEN_VERDICT))
    .values(status="cancelled", finished_ms=bindparam("now_ms"))
)
_due = upsert(memory).values(lane=bindparam("our_lane"), due_ms=bindparam("now_ms"))
# A due mark keeps its age. While a worker compresses the memory it becomes another mark, a millisecond younger: what
# the worker has read does not hold this turn's messages, so it must not clear the mark.
MARK_DUE = _due.on_conflict_do_update(
    index_elements=["lane"],
    set_={"due_ms": func.coalesce(memory.c.due_ms + number_of(memory.c.held_by.is_not(None)), _due.excluded.due_ms)},
)


@dataclass(frozen=True, slots=True)
class Entries:
    """What is added to a journal."""

    steps: Sequence[Step] = ()
    calls: Sequence[Call] = ()
    verdicts: Sequence[Verdict] = ()
    """That judges are about to be asked for."""


@dataclass(frozen=True, slots=True)
class Final:
    """Everything that is written when a turn ends."""

    ending: Ending
    progress: Json
    """Columns of the turn: usage, run_ms, patterns, first_token_ms, completed_ms."""
    entries: Entries = Entries()
    open_calls: int = 0
    """How many calls have no result; they are cancelled with the turn."""
    said: Sequence[Message] = ()
    delivery: Delivery | None = None
    spent: Mapping[str, Usage] = field(default_factory=dict)
    """What the turn has used of each model, for the ledger."""
    tool_calls: int = 0
    """Calls of tools that were made, for the ledger."""
    settlement: Settlement | None = None
    """What its last reply took off budgets."""
    rom: str | None = None
    """The system text that was sent; stored if the session had none and its database is still the same."""
    agent_version: str | None = None
    """Version of the agent that the system text comes from; stored with it where the session keeps none."""
    learned_part: Json | None = None
    """What of the learned layer is in the system text; stored with it."""
    token_correction: float | None = None
    """The provider's tokens over our estimate; None leaves the session's as it is."""
    memory_seen: int | None = None
    """The version of the session's memory that readers know of; None leaves it as it is."""
    memory_due: bool = False
    """True if L1 is to be compressed."""
    uses: Sequence[PatternUse] = ()
    has_succeeded: bool | None = None
    """Whether the turn counts as a success of its patterns; None: as neither success nor failure."""
    known_cancel: CancelAction | None = None
    """The client's cancel request that this end takes into account."""
    all_calls: Sequence[Call] = ()
    """All calls of the turn as they ended, for the audit."""
    verdicts: Sequence[Verdict] = ()
    """All verdicts on its answers, as its owner knows them; those that are open are cancelled with the turn."""
    output_ref: OutputRef | None = None
    """Reference to a long answer that another agent is to read."""
    trace: TurnTrace = NO_TRACE
    """As the turn's row keeps it, but for the run that ends, and the time of storing it."""
    is_exported: bool = False
    """True: its trace is to be exported."""
    waits_for_children: bool = False
    """True: turns of other agents that it waits for are asked to end with it."""
    decisions: Sequence[Json] = ()
    """What guards and judges decided, for the audit: ``{kind, name, outcome}`` each."""


class Journal:
    """Writes of a running turn; each is checked against the fence."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(
        self,
        claim: Claim,
        entries: Entries,
        progress: Json,
        *,
        delivery: Delivery | None = None,
        settlement: Settlement | None = None,
    ) -> None:
        """Append entries; the count of deaths starts again at 0, for the turn made progress.

        Args:
            progress: columns of the turn that go with it: usage, run_ms, patterns, first_token_ms.
            delivery: the webhook that reports it.
            settlement: what a reply among the steps took off budgets.

        Raises:
            Fenced: another worker owns the turn; nothing was written.
        """
        with self._database.write(lock=Lock.lane(claim.turn.lane)) as tx:
            fenced_update(tx, claim, {**progress, "deaths": 0})
            _append(tx, claim, entries)
            if settlement is not None:
                settle(tx, settlement, now_ms=moment_ms())
            if delivery is not None:
                enqueue_delivery(tx, delivery)

    def finish(self, claim: Claim, final: Final) -> Sequence[Turn]:
        """End the turn: last steps, status, messages, usage and webhook, all or nothing.

        Returns:
            Children of the turn that were asked to end with it.

        Raises:
            Fenced: another worker owns the turn; nothing was written.
            Overruled: the client asks for another end; nothing was written.
            Interrupted: a call that was to be cancelled has got its result; nothing was written.
        """
        now_ms, answer, began_us = final.progress["completed_ms"], _answer(final), now_us()
        lock = WHOLE if final.waits_for_children else Lock.lane(claim.turn.lane)
        with self._database.write(durable=True, lock=lock) as tx:
            used_before = ask_used(tx, claim.turn.lane)
            columns = {**final.progress, **_ended(final, answer), "held_by": None, "parked_until_ms": None}
            final_update(tx, claim, columns, known_cancel=final.known_cancel)
            _append(tx, claim, replace(final.entries, steps=_without_answer(final, answer)))
            if final.verdicts:
                _end_verdicts(tx, claim, final.verdicts)
            if final.open_calls:
                _cancel_calls(tx, claim, final.open_calls, now_ms=now_ms)
            asked: Sequence[Turn] = ()
            if final.waits_for_children:
                exported = final.is_exported
                asked = cancel_children(tx, claim.turn.workspace, claim.turn.id, now_ms=now_ms, is_exported=exported)
            if final.said:
                said = [rows.message_columns(message, lane=claim.turn.lane) for message in final.said]
                statements.INSERT_MESSAGES.run_each(tx, said)
            _charge(tx, claim, final, used_before, now_ms=now_ms)
            if final.memory_due:
                tx.execute(MARK_DUE, {"our_lane": claim.turn.lane, "now_ms": now_ms})
            if final.uses:
                spent, is_success = Usage.from_json(final.progress["usage"]), final.has_succeeded
                enter_uses(tx, claim.turn.workspace, final.uses, is_success=is_success, spent=spent, now_ms=now_ms)
            if final.delivery is not None:
                enqueue_delivery(tx, final.delivery)
            append(tx, _audited(claim, final))
            if final.is_exported:
                enqueue_trace(tx, claim.turn.id, now_ms=now_ms)
            _set_trace(tx, claim, final.trace, began_us=began_us)
            crash_points.reached("turn.committing")
        return asked


def _ended(final: Final, answer: Message | None) -> dict[str, Any]:
    ending, said = final.ending, final.ending.output_text
    return {
        "status": ending.status,
        "reason": ending.reason,
        "output_text": said if said is None or answer is None else said.removesuffix(answer.chat.text) or None,
        "answer_id": None if answer is None else answer.id,
        "error": ending.error,
        "output_ref": None if final.output_ref is None else final.output_ref.as_row(),
        "output_parts": None if ending.output_parts is None else list(ending.output_parts),
    }


def _answer(final: Final) -> Message | None:
    """The message that holds the answer, the last the turn said: its text is kept there alone."""
    last = final.said[-1] if final.said else None
    if last is None or last.chat.role != "assistant" or not last.chat.text:
        return None
    return last if (final.ending.output_text or "").endswith(last.chat.text) else None


def _without_answer(final: Final, answer: Message | None) -> Sequence[Step]:
    """The new steps as the journal keeps them: a last reply that is the answer has no text of its own."""
    last = next((step for step in reversed(final.entries.steps) if step.kind == "reply"), None)
    if answer is None or last is None or last.payload["text"] != answer.chat.text:
        return final.entries.steps
    bare = replace(last, payload={**last.payload, "text": None})
    return [bare if step is last else step for step in final.entries.steps]


def _append(tx: Connection, claim: Claim, entries: Entries) -> None:
    turn_id = claim.turn.id
    if entries.steps:
        new_steps = [
            {"turn_id": turn_id, "n": s.n, "kind": s.kind, "version": s.version, "payload": s.payload}
            for s in entries.steps
        ]
        statements.INSERT_STEPS.run_each(tx, new_steps)
    if entries.calls:
        new_calls = [{"turn_id": turn_id, **{n: getattr(c, n) for n in Call.__slots__}} for c in entries.calls]
        tx.execute(_INSERT_CALLS, new_calls)
    if entries.verdicts:
        insert_verdicts(tx, turn_id, entries.verdicts)


def _end_verdicts(tx: Connection, claim: Claim, known: Sequence[Verdict]) -> None:
    """Cancel open verdicts; the turn's cost must hold those that were given, and what each of them cost."""
    if read_verdicts(tx, claim.turn.id) != tuple(known):
        raise Interrupted(f"A judge gave its verdict on turn {claim.turn.id} while the turn was being ended.")
    if any(verdict.is_open for verdict in known):
        tx.execute(_CANCEL_VERDICTS, {"our_id": claim.turn.id, "now_ms": moment_ms()})


def _cancel_calls(tx: Connection, claim: Claim, expected: int, *, now_ms: int) -> None:
    """Cancel the calls without a result; the turn's final event and its webhook say so of each of them."""
    if tx.execute(_CANCEL_CALLS, {"our_id": claim.turn.id, "now_ms": now_ms}).rowcount != expected:
        raise Interrupted(f"A call of turn {claim.turn.id} got its result while the turn was being ended.")


def _set_trace(tx: Connection, claim: Claim, known: TurnTrace, *, began_us: int) -> None:
    """Last of all, so that it tells how long all of it took."""
    stored = Interval(began_us, now_us())
    trace = replace(known, runs=claim.trace_until(stored.ended_us, "ended").runs, stored=stored)
    statements.SET_TRACE.put(tx, {"our_id": claim.turn.id, "known": trace.as_json()})


def _audited(claim: Claim, final: Final) -> AuditEntry:
    ended = replace(
        claim.turn,
        status=final.ending.status,
        reason=final.ending.reason,
        usage=Usage.from_json(final.progress["usage"]),
        calls=tuple(final.all_calls),
        run_ms=final.progress["run_ms"],
        completed_ms=final.progress["completed_ms"],
    )
    return turn_ended(ended, user=claim.user, model=", ".join(final.spent) or None, decisions=final.decisions)


def _charge(tx: Connection, claim: Claim, final: Final, used_before: PendingRow, *, now_ms: int) -> None:
    turn, spent = claim.turn, Usage.from_json(final.progress["usage"])
    changes = {
        "usage": total_with(used_before, spent).as_json(),
        "now_ms": now_ms,
        # A session that had a system text when this turn began, and has none now, must get a new one.
        "sent_rom": final.rom if claim.rom is None else None,
        "sent_backend": claim.choice.backend,
        "kept_version": claim.choice.version,  # a session that has moved to another version gets a text of that one
        "version": final.agent_version,
        "learned_version": turn.learned_version,
        "learned_part": final.learned_part,
        "correction": final.token_correction,
        "seen": final.memory_seen,
    }
    statements.CHARGE_SESSION.put(tx, {"our_lane": turn.lane, **changes})
    if final.settlement is not None:
        settle(tx, final.settlement, now_ms=now_ms)
    if turn.budget is not None:
        forget(tx, "turn", turn.id)
    tool_calls = final.tool_calls
    for model, used in final.spent.items():
        charge = Charge(turn.workspace, turn.session_id, turn.agent, model, used, turn.id, tool_calls=tool_calls)
        enter(tx, turn.lane, charge, now_ms=now_ms)
        tool_calls = 0
    for model, used in cost_by_model(final.verdicts).items():
        charge = Charge(turn.workspace, turn.session_id, turn.agent, model, used, turn.id, kind="judge")
        enter(tx, turn.lane, charge, now_ms=now_ms)
