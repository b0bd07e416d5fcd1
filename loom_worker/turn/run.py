"""The loop: one decision after the other, every reply saved before anything else has an effect."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from loom_worker import crash_points
from loom_worker.errors import BudgetExceeded, Interrupted, Overloaded, ProviderFailed, Transient, Unavailable
from loom_worker.events.writer import Writer
from loom_worker.memory.recalled import as_text
from loom_worker.tools.call import call as call_tool
from loom_worker.turn.decide import Ask, CallHere, Close, End, FanOut, Match, Situation, Wait, decide, problem
from loom_worker.turn.loom import Shift
from loom_worker.turn.plan import Check, check
from loom_worker.turn.reply import ask
from loom_worker.turn.work import Work
from loom_worker.values.json import Json
from loom_worker.values.tools import Caller
from loom_worker.values.turns import Call, Ending

MAX_WAIT_S = 60.0
"""The longest pause for a busy provider before it is asked again."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The turn must wait; its slot is free meanwhile."""

    work: Work
    calls: tuple[Call, ...]
    """To be sent to the tool queue."""
    wait_ms: int
    """After this it looks again, should nobody wake it."""


@dataclass(frozen=True, slots=True)
class Done:
    """The turn ends."""

    work: Work
    ending: Ending


def run(work: Work, shift: Shift, pen: Writer) -> Waiting | Done:
    """Advance a turn until it must wait or has ended.

    Raises:
        Fenced: another worker owns the turn.
        Interrupted: this worker must stop, or lost the turn.
        Unavailable: the database did not answer.
    """
    loom = shift.loom
    park_ms = int(loom.settings.lanes.park_check_s * 1000)
    while True:
        decision = decide(work, shift.limits, situation(work, shift))
        # What has its answer is ended even while the worker stops: there may be no other to do it.
        if shift.hold.lost.is_set() or (loom.stopping.is_asked and not isinstance(decision, End)):
            saved(work, shift, pen)  # a reply that was paid for is kept, if the turn is still ours
            raise Interrupted("The turn is left to another worker.")
        match decision:
            case Match():
                work = _match(work, shift, pen)
            case Ask(may_call_tools):
                work = saved(work, shift, pen)
                try:
                    work = ask(work, shift, pen, may_call_tools=may_call_tools)
                    crash_points.reached("turn.replied")
                except Unavailable:
                    raise
                except Transient as error:
                    return Waiting(work.waited(str(error)), (), _pause_ms(work, error))
                except (ProviderFailed, BudgetExceeded) as error:
                    return Done(work, Ending("failed", _reason(error), error=problem(_reason(error), str(error))))
            case CallHere(call):
                work = _call_here(saved(work, shift, pen), call, shift, pen)
            case Close(calls):
                work = _close(saved(work, shift, pen), calls, shift, pen)
            case FanOut(calls):
                return Waiting(work, calls, park_ms)
            case Wait():
                return Waiting(work, (), park_ms)
            case End(ending):
                return Done(work, ending)


def saved(work: Work, shift: Shift, pen: Writer) -> Work:
    """Write to the journal what would have to be paid for again; the rest can go with the next step."""
    return save(work, shift, pen, {}) if work.has_unsaved_reply else work


def save(work: Work, shift: Shift, pen: Writer, columns: Json) -> Work:
    """Write all there is to the journal.

    Args:
        columns: of the turn's row, to be changed in the same transaction.

    Raises:
        Fenced: another worker owns the turn; nothing was written.
    """
    work = work.told(pen.take_log())
    columns = {**progress(work, shift), **columns}
    shift.write(partial(shift.loom.journal.save, work.claim, work.unsaved_steps, work.unsaved_calls, columns))
    crash_points.reached("turn.journaled")
    return work.saved()


def progress(work: Work, shift: Shift) -> Json:
    """The columns of a turn that follow from what was done."""
    return {
        "usage": work.usage.as_json(),
        "run_ms": shift.run_ms,
        "patterns": list(work.patterns),
        "first_token_ms": work.first_token_ms,
    }


def situation(work: Work, shift: Shift) -> Situation:
    """Look around; tools and other workers are asked after only if calls are under way."""
    loom = shift.loom
    now_ms = loom.clock_ms()
    alive = loom.alive_workers() if any(call.status == "running" for call in work.open_calls) else frozenset()
    return Situation(
        now_ms=now_ms,
        run_ms=shift.run_ms,
        check=_check(work.open_calls, alive, shift, now_ms),
        bounded=frozenset(call.name for call in work.open_calls if _is(shift, call.name, "is_bounded")),
        wish=shift.wishes.now(),
    )


def _check(calls: Sequence[Call], alive: frozenset[str], shift: Shift, now_ms: int) -> Check:
    if not calls:
        return Check((), ())
    timeout_s = shift.loom.settings.limits.tool_timeout_s
    return check(calls, alive, lambda name: _is(shift, name, "is_idempotent"), now_ms=now_ms, timeout_s=timeout_s)


def _is(shift: Shift, name: str, fact: str) -> bool:
    tool = shift.kit.registry.get(name)
    return tool is not None and bool(getattr(tool, fact))


def _match(work: Work, shift: Shift, pen: Writer) -> Work:
    context, patterns = shift.loom.match(work.turn.input, shift.kit.agent)
    if patterns:
        pen.emit("pattern.matched", {"patterns": list(patterns)})
    return work.matched(context, as_text(shift.recollect().recalled), patterns)


def _call_here(work: Work, call: Call, shift: Shift, pen: Writer) -> Work:
    loom = shift.loom
    now_ms = loom.clock_ms()
    sent = loom.calls.send(work.claim, (call,), now_ms=now_ms)
    sends = sent[0].sends if sent else 0
    running = loom.calls.claim(work.turn.id, call.position, sends, worker=loom.worker, now_ms=now_ms, durable=False)
    tool = shift.kit.registry.get(call.name)
    if running is None or tool is None:
        raise Interrupted(f"Call {call.id} was taken by another worker.")
    turn = work.turn
    caller = Caller(turn.lane, turn.session_id, turn.workspace, turn.id, call.id)
    outcome = call_tool(tool, call.arguments, caller, timeout_s=loom.settings.limits.tool_timeout_s)
    done = replace(running, status=outcome.status, content=outcome.content, finished_ms=loom.clock_ms())
    return _close(work, (done,), shift, pen)


def _close(work: Work, calls: Sequence[Call], shift: Shift, pen: Writer) -> Work:
    """Store ends of calls; where another result came first, that one stays and is found at the next entry."""
    for call in calls:
        if shift.loom.calls.close(work.turn.id, call) is None:
            raise Interrupted(f"Call {call.id} got its result from elsewhere.")
        pen.emit("tool_call.completed", call.as_json())
    return work.with_calls(calls)


def _pause_ms(work: Work, error: Transient) -> int:
    wanted_s = error.retry_after_s if isinstance(error, Overloaded) else None
    pause_s = max(wanted_s or 0.0, float(2 ** (work.waits + 1)))
    return int(min(pause_s, MAX_WAIT_S) * 1000)


def _reason(error: Exception) -> str:
    return "provider" if isinstance(error, ProviderFailed) else "context"
