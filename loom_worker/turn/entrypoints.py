"""The doors of the room: a doorbell rang, a tool call came, a wait is over."""

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
from loom_worker.events.writer import Writer
from loom_worker.lanes.lease_renewer import Hold
from loom_worker.store.claims import Idle
from loom_worker.turn import wait_log
from loom_worker.turn.cancel_requests import Wishes
from loom_worker.turn.context import HISTORY_MESSAGES
from loom_worker.turn.ending import end, leave
from loom_worker.turn.model_watch import ModelWatch
from loom_worker.turn.ownership import Ownership
from loom_worker.turn.reply import retell
from loom_worker.turn.run import Done, Waiting, run, save
from loom_worker.turn.runtime import Kit, Loom, Shift
from loom_worker.turn.state import Work
from loom_worker.turn.store_retry import until_written

log = logging.getLogger(__name__)

AGAIN_MS = 1_000
"""A turn that failed in a way we did not foresee is tried again after this; each time counts as an attempt."""


def serve_lane(lane: str, loom: Loom) -> None:
    """Run a lane's next turn, or go on with a parked one; ringing twice does nothing twice.

    The turns behind it follow in the same slot, as long as no other lane waits for one.
    """
    lease = loom.lanes.take(lane, f"{loom.worker}-{secrets.token_hex(6)}")
    while lease is not None:
        crash_points.reached("turn.leased")
        hold = loom.keeper.hold(lease)
        try:
            _serve_hold(hold, loom)
        finally:
            loom.keeper.let_go(hold)
        lease = hold.kept


def _serve_hold(hold: Hold, loom: Loom) -> None:
    lease = hold.lease
    match loom.claims.claim(lease.lane, worker=loom.worker, now_ms=loom.clock_ms()):
        case Idle.EMPTY:
            loom.keeper.let_go(hold)  # a beat after the next line would write the idle lane's lease again
            _ring_if(loom.lanes.complete(lease, lease.last_seq), lease.lane, loom)
        case Idle.PAUSED:
            loom.keeper.let_go(hold)
            loom.lanes.drop(lease)
        case Claim() as claim:
            crash_points.reached("turn.claimed")
            serve_claim(claim, hold, loom)


def serve_claim(claim: Claim, hold: Hold, loom: Loom) -> None:
    """Run a turn that is ours, and leave its lane in a state from which it goes on."""
    lane, lease = claim.turn.lane, hold.lease
    if _needs_own_process(claim, loom):
        _run_alone(claim, hold, loom)
        return
    began_s = time.monotonic()
    try:
        loom.content.catch_up()  # behind the claim: the turn has what any process had accepted by then
        kit = loom.kit(claim.turn.agent, claim.choice, claim.turn.workspace)
        ownership = Ownership(hold, lambda: loom.claims.is_ours(claim), lease_s=loom.settings.lanes.lease_s)
        wishes = Wishes(
            claim.turn.cancel,
            alerted=hold.alerted,
            read=lambda: loom.claims.wish(claim),
            is_alone=loom.is_alone,
        )
        recollect = cache(lambda: loom.memories.load(lane, limit=HISTORY_MESSAGES, claim=claim))
        standing = cache(lambda: loom.standing(kit))
        watch = ModelWatch(claim.turn, loom.waits, asked=_asked(kit, loom), clock_ms=loom.clock_ms)
        shift = Shift(loom, kit, hold, began_s, claim.turn.run_ms, ownership, wishes, watch, recollect, standing)
        _advance(claim, shift)
    except Interrupted as error:
        log.info("turn handed over: %s", error, extra={"turn": claim.turn.id})
        _quietly(lambda: loom.claims.release(claim, run_ms=_run_ms(claim, began_s)))
        _ring_if(loom.lanes.release(lease), lane, loom)
    except Fenced as error:
        log.warning("fenced off: %s", error, extra={"turn": claim.turn.id})
        _ring_if(loom.lanes.release(lease), lane, loom)
    except Unavailable as error:
        log.warning("turn given back: %s", error, extra={"turn": claim.turn.id})
        _quietly(lambda: loom.claims.release(claim, run_ms=_run_ms(claim, began_s)))
        _quietly(lambda: loom.lanes.release(lease, wait_ms=AGAIN_MS))
    except Exception:  # the top of a task: whatever else failed counts as a death of the turn's owner, and is told
        log.exception("turn failed unforeseen", extra={"turn": claim.turn.id})
        loom.lanes.release(lease, wait_ms=AGAIN_MS)


def _run_alone(claim: Claim, hold: Hold, loom: Loom) -> None:
    turn = claim.turn
    status = loom.doors.run_alone(turn.lane, hold.lease.token, turn.id, turn.fence)
    if status != 0:
        log.error("turn died in a process of its own", extra={"turn": turn.id, "status": status})
        _ring_if(loom.lanes.release(hold.lease), turn.lane, loom)
    elif loom.claims.resume(turn.id, fence=turn.fence) is None:
        leave(hold, turn, loom)


def _asked(kit: Kit, loom: Loom) -> str:
    """The model, for the log."""
    return f"{kit.model.name} ({kit.agent.provider or loom.settings.llm.provider})"


def _run_ms(claim: Claim, began_s: float) -> int:
    """Milliseconds the turn has run, over all its owners."""
    return claim.turn.run_ms + int((time.monotonic() - began_s) * 1000)


def serve_call(turn_id: str, position: int, send: int, loom: Loom) -> None:
    """Run one tool call, store its result, and wake the turn if it was the last. Never raises for what a tool does."""
    owner = loom.calls.owner_of(turn_id, position)
    if owner is None:
        return
    loom.content.catch_up()
    tool = loom.kit(owner.agent, owner.choice, owner.caller.workspace).tool(owner.tool)
    now_ms = loom.clock_ms()
    durable = tool is not None and not tool.is_idempotent
    call = loom.calls.claim(turn_id, position, send, worker=loom.worker, now_ms=now_ms, durable=durable)
    if call is None:
        return
    crash_points.reached("tool.claimed")
    outcome = _outcome(tool, call, owner.caller, loom)
    crash_points.reached("tool.ran")
    concluded = until_written(partial(loom.concluded, call, outcome, owner.caller), stopping=loom.stopping)
    done = replace(concluded, finished_ms=loom.clock_ms())
    concurrency = loom.settings.tools.concurrency
    left = until_written(partial(loom.calls.close, turn_id, done, concurrency=concurrency), stopping=loom.stopping)
    if left is None:
        return
    crash_points.reached("tool.journaled")
    _quietly(lambda: loom.events.append(turn_id, [("tool_call.completed", done.as_json())], least=1))
    if left.next is not None:
        loom.doors.call(turn_id, left.next)
    if left.under_way == 0:
        serve_wake(owner.caller.lane, ticket(turn_id, call), loom)


def _outcome(tool: Tool | None, call: Call, caller: Caller, loom: Loom) -> Outcome:
    if tool is None:  # withdrawn since the model asked; without a result the turn would wait for ever
        return Outcome("failed", f"there is no tool {call.name!r} any more")
    return loom.run_tool(tool, call.arguments, caller)


def serve_wake(lane: str, turn_ticket: str, loom: Loom) -> None:
    """End a lane's waiting; repeats of a ticket do nothing."""
    _ring_if(loom.lanes.wake(lane, turn_ticket), lane, loom)


def ticket(turn_id: str, call: Call) -> str:
    """What makes all signals of one fan-out the same."""
    return f"{turn_id}:{call.reply_n}"


def _advance(claim: Claim, shift: Shift) -> None:
    loom, turn = shift.loom, claim.turn
    first = 2 if turn.fence == 1 else None  # behind turn.queued
    journaled = partial(rebuild, turn, claim.steps)
    pen = Writer(loom.events, turn.id, journaled, flusher=loom.flusher, fence=turn.fence, first=first)
    work = Work.begin(claim)
    if turn.fence == 1:
        pen.emit("turn.started", {"attempt": turn.attempt})
    elif turn.deaths or pen.has_orphans():
        retell(work, pen, "the worker that ran it died" if turn.deaths else "another worker goes on with it")
    left: Work | None = work
    try:
        while left is not None:
            left = _go_on(left, shift, pen)
    finally:
        pen.close()


def _go_on(work: Work, shift: Shift, pen: Writer) -> Work | None:
    """Run the turn until it waits or has ended; the work is returned if the client's wish came before its end."""
    match run(work, shift, pen):
        case Waiting(work, calls, wait_ms):
            _wait(work, calls, wait_ms, shift, pen)
            return None
        case Done(work, ending):
            work = work.told(pen.take_log())
            try:
                end(work, ending, shift, pen)
            except Overruled:
                shift.wishes.are_missed()
                return work
            return None


def _wait(work: Work, calls: tuple[Call, ...], wait_ms: int, shift: Shift, pen: Writer) -> None:
    """Free the slot: first the database, then the lane, and only then anyone who could wake it."""
    loom, lane, now_ms = shift.loom, work.turn.lane, shift.loom.clock_ms()
    new = {call.position for call in work.unsaved_calls}
    sent = tuple(replace(call, sends=1, sent_ms=now_ms) for call in calls if call.position in new)
    again = tuple(call for call in calls if call.position not in new)
    if any(call.sends for call in again):
        log.warning("tool calls sent again", extra={"turn": work.turn.id})
    if again:
        sent += loom.calls.send(work.claim, again, now_ms=now_ms)
    work = work.with_calls(sent)
    wait_log.tell(work, shift, now_ms=now_ms)
    asks = {"status": "requires_action"} if any(call.is_waiting for call in work.calls) else {}
    save(work, shift, pen, {"held_by": None, "parked_until_ms": now_ms + wait_ms, **asks})
    pen.flush()  # before others write: tool workers tell of their results
    must_ring = loom.lanes.park(shift.hold.lease, wait_ms=wait_ms)
    # An alert that our keeper has heard and nobody has looked after is not in the lane any more.
    _ring_if(must_ring or (shift.wishes.is_alerted and loom.lanes.alert(lane)), lane, loom)
    if sent:
        # A chord of some calls ends before the last one does, whose signal must not be taken for the same.
        part = ":part" if len(sent) < len(work.open_calls) else ""
        loom.doors.fan_out(lane, work.turn.id, sent, ticket(work.turn.id, sent[0]) + part)


def _needs_own_process(claim: Claim, loom: Loom) -> bool:
    """The last attempt of a turn whose owners died runs where it can take no neighbour with it."""
    deaths = claim.turn.deaths
    return not loom.is_alone and 0 < deaths == claim.turn.max_attempts - 1


def _ring_if(is_needed: bool, lane: str, loom: Loom) -> None:
    if is_needed:
        loom.doors.ring(lane)


def _quietly(action: Callable[[], object]) -> None:
    """For what another remedy makes good: the sweep, or the journal."""
    try:
        action()
    except LoomError as error:
        log.warning("%s", error)
