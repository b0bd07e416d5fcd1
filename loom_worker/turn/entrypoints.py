"""The doors of the room: a wake-up rang, a tool call came, a wait is over."""

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

from loom_worker.core import crash_points
from loom_worker.core.errors import Fenced, Interrupted, LoomError, Overruled, Unavailable
from loom_worker.core.values.tools import Caller, Outcome, Tool
from loom_worker.core.values.turns import Call, Claim
from loom_worker.events.rebuild import rebuild
from loom_worker.events.writer import EventWriter
from loom_worker.lanes.lease_renewer import HeldLease
from loom_worker.store.claims import Idle
from loom_worker.turn import wait_log
from loom_worker.turn.cancel_requests import CancelRequests
from loom_worker.turn.context import HISTORY_MESSAGES
from loom_worker.turn.ending import end, leave
from loom_worker.turn.model_watch import ModelWatch
from loom_worker.turn.ownership import Ownership
from loom_worker.turn.reply import retell
from loom_worker.turn.run import Done, Waiting, run, save
from loom_worker.turn.runtime import AgentRuntime, Execution, TurnWorker
from loom_worker.turn.state import TurnState
from loom_worker.turn.store_retry import until_written

log = logging.getLogger(__name__)

AGAIN_MS = 1_000
"""A turn that failed in a way we did not foresee is tried again after this; each time counts as an attempt."""


def serve_lane(lane: str, worker: TurnWorker) -> None:
    """Run a lane's next turn, or go on with a parked one; ringing twice does nothing twice.

    The turns behind it follow in the same slot, as long as no other lane waits for one.
    """
    lease = worker.lanes.take(lane, f"{worker.worker}-{secrets.token_hex(6)}")
    while lease is not None:
        crash_points.reached("turn.leased")
        hold = worker.keeper.hold(lease)
        try:
            _serve_hold(hold, worker)
        finally:
            worker.keeper.let_go(hold)
        lease = hold.kept


def _serve_hold(hold: HeldLease, worker: TurnWorker) -> None:
    lease = hold.lease
    match worker.claims.claim(lease.lane, worker=worker.worker, now_ms=worker.clock_ms()):
        case Idle.EMPTY:
            worker.keeper.let_go(hold)  # a beat after the next line would write the idle lane's lease again
            _wake_if(worker.lanes.complete(lease, lease.last_seq), lease.lane, worker)
        case Idle.PAUSED:
            worker.keeper.let_go(hold)
            worker.lanes.drop(lease)
        case Claim() as claim:
            crash_points.reached("turn.claimed")
            serve_claim(claim, hold, worker)


def serve_claim(claim: Claim, hold: HeldLease, worker: TurnWorker) -> None:
    """Run a turn that is ours, and leave its lane in a state from which it goes on."""
    lane, lease = claim.turn.lane, hold.lease
    if _needs_own_process(claim, worker):
        _run_isolated(claim, hold, worker)
        return
    began_s = time.monotonic()
    try:
        worker.content.catch_up()  # behind the claim: the turn has what any process had accepted by then
        runtime = worker.runtime(claim.turn.agent, claim.choice, claim.turn.workspace)
        ownership = Ownership(hold, lambda: worker.claims.is_ours(claim), lease_s=worker.settings.lanes.lease_s)
        cancel_requests = CancelRequests(
            claim.turn.cancel,
            alerted=hold.alerted,
            read=lambda: worker.claims.cancel_action(claim),
            is_isolated=worker.is_isolated,
        )
        recollect = cache(lambda: worker.memories.load(lane, limit=HISTORY_MESSAGES, claim=claim))
        standing = cache(lambda: worker.standing(runtime))
        watch = ModelWatch(claim.turn, worker.waits, asked=_asked(runtime, worker), clock_ms=worker.clock_ms)
        execution = Execution(
            worker, runtime, hold, began_s, claim.turn.run_ms, ownership, cancel_requests, watch, recollect, standing
        )
        _advance(claim, execution)
    except Interrupted as error:
        log.info("turn handed over: %s", error, extra={"turn": claim.turn.id})
        _quietly(lambda: worker.claims.release(claim, run_ms=_run_ms(claim, began_s)))
        _wake_if(worker.lanes.release(lease), lane, worker)
    except Fenced as error:
        log.warning("fenced off: %s", error, extra={"turn": claim.turn.id})
        _wake_if(worker.lanes.release(lease), lane, worker)
    except Unavailable as error:
        log.warning("turn given back: %s", error, extra={"turn": claim.turn.id})
        _quietly(lambda: worker.claims.release(claim, run_ms=_run_ms(claim, began_s)))
        _quietly(lambda: worker.lanes.release(lease, wait_ms=AGAIN_MS))
    except Exception:  # the top of a task: whatever else failed counts as a death of the turn's owner, and is told
        log.exception("turn failed unforeseen", extra={"turn": claim.turn.id})
        worker.lanes.release(lease, wait_ms=AGAIN_MS)


def _run_isolated(claim: Claim, hold: HeldLease, worker: TurnWorker) -> None:
    turn = claim.turn
    status = worker.dispatcher.run_isolated(turn.lane, hold.lease.token, turn.id, turn.fence)
    if status != 0:
        log.error("turn died in a process of its own", extra={"turn": turn.id, "status": status})
        _wake_if(worker.lanes.release(hold.lease), turn.lane, worker)
    elif worker.claims.resume(turn.id, fence=turn.fence) is None:
        leave(hold, turn, worker)


def _asked(runtime: AgentRuntime, worker: TurnWorker) -> str:
    """The model, for the log."""
    return f"{runtime.model.name} ({runtime.agent.provider or worker.settings.llm.provider})"


def _run_ms(claim: Claim, began_s: float) -> int:
    """Milliseconds the turn has run, over all its owners."""
    return claim.turn.run_ms + int((time.monotonic() - began_s) * 1000)


def serve_call(turn_id: str, position: int, send: int, worker: TurnWorker) -> None:
    """Run one tool call, store its result, and wake the turn if it was the last. Never raises for what a tool does."""
    owner = worker.calls.owner_of(turn_id, position)
    if owner is None:
        return
    worker.content.catch_up()
    tool = worker.runtime(owner.agent, owner.choice, owner.caller.workspace).tool(owner.tool)
    now_ms = worker.clock_ms()
    durable = tool is not None and not tool.is_idempotent
    call = worker.calls.claim(turn_id, position, send, worker=worker.worker, now_ms=now_ms, durable=durable)
    if call is None:
        return
    crash_points.reached("tool.claimed")
    outcome = _outcome(tool, call, owner.caller, worker)
    crash_points.reached("tool.ran")
    concluded = until_written(partial(worker.concluded, call, outcome, owner.caller), stopping=worker.stopping)
    done = replace(concluded, finished_ms=worker.clock_ms())
    concurrency = worker.settings.tools.concurrency
    left = until_written(partial(worker.calls.close, turn_id, done, concurrency=concurrency), stopping=worker.stopping)
    if left is None:
        return
    crash_points.reached("tool.journaled")
    _quietly(lambda: worker.events.append(turn_id, [("tool_call.completed", done.as_json())], least=1))
    if left.next is not None:
        worker.dispatcher.call(turn_id, left.next)
    if left.under_way == 0:
        serve_wake(owner.caller.lane, ticket(turn_id, call), worker)


def _outcome(tool: Tool | None, call: Call, caller: Caller, worker: TurnWorker) -> Outcome:
    if tool is None:  # withdrawn since the model asked; without a result the turn would wait for ever
        return Outcome("failed", f"there is no tool {call.name!r} any more")
    return worker.run_tool(tool, call.arguments, caller)


def serve_wake(lane: str, turn_ticket: str, worker: TurnWorker) -> None:
    """End a lane's waiting; repeats of a ticket do nothing."""
    _wake_if(worker.lanes.wake(lane, turn_ticket), lane, worker)


def ticket(turn_id: str, call: Call) -> str:
    """What makes all signals of one fan-out the same."""
    return f"{turn_id}:{call.reply_n}"


def _advance(claim: Claim, execution: Execution) -> None:
    worker, turn = execution.worker, claim.turn
    first = 2 if turn.fence == 1 else None  # behind turn.queued
    journaled = partial(rebuild, turn, claim.steps)
    writer = EventWriter(worker.events, turn.id, journaled, flusher=worker.flusher, fence=turn.fence, first=first)
    work = TurnState.begin(claim)
    if turn.fence == 1:
        writer.emit("turn.started", {"attempt": turn.attempt})
    elif turn.deaths or writer.has_orphans():
        retell(work, writer, "the worker that ran it died" if turn.deaths else "another worker goes on with it")
    left: TurnState | None = work
    try:
        while left is not None:
            left = _go_on(left, execution, writer)
    finally:
        writer.close()


def _go_on(work: TurnState, execution: Execution, writer: EventWriter) -> TurnState | None:
    """Run the turn until it waits or has ended; the state is returned if a cancel request came before the end."""
    match run(work, execution, writer):
        case Waiting(work, calls, wait_ms):
            _wait(work, calls, wait_ms, execution, writer)
            return None
        case Done(work, ending):
            work = work.told(writer.take_log())
            try:
                end(work, ending, execution, writer)
            except Overruled:
                execution.cancel_requests.are_missed()
                return work
            return None


def _wait(work: TurnState, calls: tuple[Call, ...], wait_ms: int, execution: Execution, writer: EventWriter) -> None:
    """Free the slot: first the database, then the lane, and only then anyone who could wake it."""
    worker, lane, now_ms = execution.worker, work.turn.lane, execution.worker.clock_ms()
    new = {call.position for call in work.unsaved_calls}
    sent = tuple(replace(call, sends=1, sent_ms=now_ms) for call in calls if call.position in new)
    again = tuple(call for call in calls if call.position not in new)
    if any(call.sends for call in again):
        log.warning("tool calls sent again", extra={"turn": work.turn.id})
    if again:
        sent += worker.calls.send(work.claim, again, now_ms=now_ms)
    work = work.with_calls(sent)
    wait_log.tell(work, execution, now_ms=now_ms)
    asks = {"status": "requires_action"} if any(call.is_waiting for call in work.calls) else {}
    save(work, execution, writer, {"held_by": None, "parked_until_ms": now_ms + wait_ms, **asks})
    writer.flush()  # before others write: tool workers tell of their results
    must_wake = worker.lanes.park(execution.hold.lease, wait_ms=wait_ms)
    # An alert that our keeper has heard and nobody has looked after is not in the lane any more.
    _wake_if(must_wake or (execution.cancel_requests.is_alerted and worker.lanes.alert(lane)), lane, worker)
    if sent:
        # A chord of some calls ends before the last one does, whose signal must not be taken for the same.
        part = ":part" if len(sent) < len(work.open_calls) else ""
        worker.dispatcher.fan_out(lane, work.turn.id, sent, ticket(work.turn.id, sent[0]) + part)


def _needs_own_process(claim: Claim, worker: TurnWorker) -> bool:
    """The last attempt of a turn whose owners died runs where it can take no neighbour with it."""
    deaths = claim.turn.deaths
    return not worker.is_isolated and 0 < deaths == claim.turn.max_attempts - 1


def _wake_if(is_needed: bool, lane: str, worker: TurnWorker) -> None:
    if is_needed:
        worker.dispatcher.wake(lane)


def _quietly(action: Callable[[], object]) -> None:
    """For what another remedy makes good: the sweep, or the journal."""
    try:
        action()
    except LoomError as error:
        log.warning("%s", error)
