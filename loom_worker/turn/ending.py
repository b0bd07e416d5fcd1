"""A turn ends: what it said, what it cost and who must be told, in one transaction; then, and only then, the news."""

import logging
from dataclasses import replace
from functools import partial

from loom_worker.core import crash_points
from loom_worker.core.values.deliveries import Delivery
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import Message
from loom_worker.core.values.turns import CANCELLED, CancelAction, Ending, Turn
from loom_worker.events.writer import EventWriter
from loom_worker.lanes.lease_renewer import HeldLease
from loom_worker.memory.layers import message_tokens
from loom_worker.store.journal import Final
from loom_worker.turn.context import is_pressed
from loom_worker.turn.pattern_outcomes import has_succeeded, patterns_of, uses
from loom_worker.turn.reply import system_rom
from loom_worker.turn.run import progress
from loom_worker.turn.runtime import Execution, TurnWorker
from loom_worker.turn.state import TurnState
from loom_worker.turn.transcript import said, usage_of

log = logging.getLogger(__name__)


def end(work: TurnState, ending: Ending, execution: Execution, writer: EventWriter) -> None:
    """Commit the end of a turn, then tell readers, the lane and the webhook.

    Args:
        work: with all that the writer wrote so far told to it.

    Raises:
        Fenced: another worker owns the turn; nothing was written, nobody is told.
        Overruled: the client asks it to end otherwise; nothing was written, nobody is told.
        Interrupted: a call that had no result has one now; nothing was written, nobody is told.
        Unavailable: the database refused; there is no answer.
    """
    worker = execution.worker
    now_ms = worker.clock_ms()
    work = replace(work, patterns=patterns_of(work, worker.version_of))
    turn = finished(work, ending, cancel=execution.cancel_requests.known, now_ms=now_ms, run_ms=execution.run_ms)
    delivery = Delivery.of(turn, worker.webhook_body(turn), now_ms=now_ms) if turn.webhook else None
    last = work.last_reply
    crash_points.reached("turn.ending")
    messages = _messages(work, execution, now_ms) if ending.leaves_messages else ()
    is_full = bool(messages) and is_pressed(execution.runtime, execution.recollect(), messages)
    final = Final(
        ending=ending,
        progress={**progress(work, execution), "run_ms": turn.run_ms, "completed_ms": now_ms},
        steps=work.unsaved_steps,
        calls=work.unsaved_calls,
        open_calls=len(work.open_calls),
        said=messages,
        delivery=delivery,
        model=str(last.payload["model"]) if last else "",
        rom=system_rom(work, execution) if last else None,
        heard=turn.cancel,
        agent_version=execution.runtime.agent.version,
        token_correction=work.correction,
        memory_seen=execution.recollect().state.version if last else None,
        memory_due=is_full,
        uses=uses(work.patterns),
        has_succeeded=has_succeeded(ending),
    )
    execution.write(partial(worker.journal.finish, work.claim, final))
    crash_points.reached("turn.ended")
    log.info("turn %s", turn.status, extra=log_ids(turn))
    writer.emit(f"turn.{turn.status}", turn.as_json())
    if not worker.is_isolated:  # else the parent holds the lease, and gives the lane back itself
        leave(execution.hold, turn, worker)
    if delivery is not None:
        worker.dispatcher.deliver(delivery.id)
    if is_full:
        worker.dispatcher.summarize(turn.lane)


def leave(hold: HeldLease, turn: Turn, worker: TurnWorker) -> None:
    """Go on to the next turn of the lane of one that has ended, or give it back and ring if more wait in it."""
    worker.keeper.let_go(hold)  # a beat in between would write the lease of the idle lane again
    if worker.stopping.is_asked:
        must_wake = worker.lanes.complete(hold.lease, turn.seq)
    else:
        hold.kept, must_wake = worker.lanes.advance(hold.lease, turn.seq)
    if must_wake:
        worker.dispatcher.wake(turn.lane)


def log_ids(turn: Turn) -> Json:
    """What a log line about an ended turn names: ids and figures, nothing that anyone wrote."""
    ids = {"session": turn.session_id, "turn": turn.id, "request": turn.request_id}
    return {**ids, "status": turn.reason or turn.status, "duration_ms": turn.run_ms}


def finished(work: TurnState, ending: Ending, *, cancel: CancelAction | None = None, now_ms: int, run_ms: int) -> Turn:
    """The turn as every reader will find it from now on."""
    closed = tuple(
        replace(call, status="cancelled", started_ms=None, finished_ms=now_ms, content=CANCELLED)
        if call.is_open
        else call
        for call in work.calls
    )
    return replace(
        work.turn,
        status=ending.status,
        reason=ending.reason,
        deaths=0 if work.has_got_on else work.turn.deaths,
        output_text=ending.output_text,
        error=ending.error,
        usage=work.usage,
        patterns=work.patterns,
        first_token_ms=work.first_token_ms,
        calls=closed,
        completed_ms=now_ms,
        run_ms=run_ms,
        position=0,
        cancel=cancel,
    )


def _messages(work: TurnState, execution: Execution, now_ms: int) -> tuple[Message, ...]:
    turn = work.turn
    return tuple(
        Message(
            id=new_id("msg_"),
            session_id=turn.session_id,
            turn_id=turn.id,
            chat=chat,
            token_count=message_tokens(chat, execution.runtime.count),
            created_ms=now_ms,
            usage=usage_of(usage),
        )
        for chat, usage in said(work)
    )
