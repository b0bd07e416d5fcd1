"""The loop: one decision after the other, every reply saved before anything else has an effect."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from loom_worker.core import crash_points
from loom_worker.core.errors import BudgetExceeded, Interrupted, Overloaded, ProviderFailed, Transient, Unavailable
from loom_worker.core.fence import fence
from loom_worker.core.values.deliveries import Delivery
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Call, Ending
from loom_worker.core.values.waiting import Waiting as ForPerson
from loom_worker.events.writer import EventWriter
from loom_worker.memory.recalled import as_text
from loom_worker.tools.call_request import BUILD_S
from loom_worker.turn.decide import (
    Approve,
    Ask,
    AskPerson,
    CallHere,
    Close,
    End,
    FanOut,
    Match,
    Situation,
    Wait,
    decide,
    failed,
)
from loom_worker.turn.reply import ask
from loom_worker.turn.runtime import Execution
from loom_worker.turn.state import TurnState
from loom_worker.turn.tool_plan import Check, Rules, check

MAX_WAIT_S = 60.0
"""The longest pause for a busy provider before it is asked again."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The turn must wait; its slot is free meanwhile."""

    work: TurnState
    calls: tuple[Call, ...]
    """To be sent to the tool queue."""
    wait_ms: int
    """After this it looks again, should nobody wake it."""


@dataclass(frozen=True, slots=True)
class Done:
    """The turn ends."""

    work: TurnState
    ending: Ending


def run(work: TurnState, execution: Execution, writer: EventWriter) -> Waiting | Done:
    """Advance a turn until it must wait or has ended.

    Raises:
        Fenced: another worker owns the turn.
        Interrupted: this worker must stop, or lost the turn.
        Unavailable: the database did not answer.
    """
    worker = execution.worker
    park_ms = int(worker.settings.lanes.park_check_s * 1000)
    while True:
        decision = decide(work, execution.limits, situation(work, execution))
        # What has its answer is ended even while the worker stops: there may be no other to do it.
        if execution.ownership.is_lost() or (worker.stopping.is_asked and not isinstance(decision, End)):
            saved(work, execution, writer)  # a reply that was paid for is kept, if the turn is still ours
            raise Interrupted("The turn is left to another worker.")
        match decision:
            case Match():
                work = _match(work, execution, writer)
            case Ask(may_call_tools):
                work = saved(work, execution, writer)
                execution.watch.begin(work)
                try:
                    work = ask(work, execution, writer, may_call_tools=may_call_tools)
                    crash_points.reached("turn.replied")
                except Unavailable:
                    raise
                except Transient as error:
                    pause_ms = _pause_ms(work, error)
                    return Waiting(work.waited(str(error), execution.watch.parked(error, pause_ms)), (), pause_ms)
                except (ProviderFailed, BudgetExceeded) as error:
                    return Done(work, failed(work, _reason(error), str(error)).ending)
            case CallHere(call):
                work = _call_here(saved(work, execution, writer), call, execution, writer)
            case Close(calls):
                work = _close(saved(work, execution, writer), calls, execution, writer)
            case Approve(calls):
                work = _approve(saved(work, execution, writer), calls, execution)
            case FanOut(calls):
                return Waiting(work, calls, park_ms)
            case Wait():
                return Waiting(work, (), park_ms)
            case AskPerson(until_ms):
                return Waiting(work, (), max(until_ms - worker.clock_ms(), 1))
            case End(ending):
                return Done(work, ending)


def saved(work: TurnState, execution: Execution, writer: EventWriter) -> TurnState:
    """Write to the journal what would have to be paid for again; the rest can go with the next step."""
    return save(work, execution, writer, {}) if work.has_unsaved_reply else work


def save(work: TurnState, execution: Execution, writer: EventWriter, columns: Json) -> TurnState:
    """Write all there is to the journal.

    Args:
        columns: of the turn's row, to be changed in the same transaction.

    Raises:
        Fenced: another worker owns the turn; nothing was written.
    """
    work = work.told(writer.take_log())
    columns = {**progress(work, execution), **columns}
    delivery = _asking(work, execution)
    steps, calls = work.unsaved_steps, work.unsaved_calls
    execution.write(partial(execution.worker.journal.save, work.claim, steps, calls, columns, delivery=delivery))
    crash_points.reached("turn.journaled")
    if delivery is not None:
        execution.worker.dispatcher.deliver(delivery.id)
    return work.saved()


def _asking(work: TurnState, execution: Execution) -> Delivery | None:
    """The webhook that tells of calls which wait for a person, once for each reply that asks for some."""
    if work.turn.webhook is None or not any(call.is_waiting for call in work.unsaved_calls):
        return None
    now_ms = execution.worker.clock_ms()
    done = replace(work.turn, usage=work.usage, patterns=work.patterns, calls=work.calls)
    turn = replace(done, status="requires_action", waiting=ForPerson("person", now_ms))
    return Delivery.of(turn, execution.worker.webhook_body(turn), now_ms=now_ms)


def progress(work: TurnState, execution: Execution) -> Json:
    """The columns of a turn that follow from what was done."""
    return {
        "usage": work.usage.as_json(),
        "run_ms": execution.run_ms,
        "patterns": list(work.patterns),
        "first_token_ms": work.first_token_ms,
    }


def situation(work: TurnState, execution: Execution) -> Situation:
    """Look around; tools and other workers are asked after only if calls are under way."""
    worker = execution.worker
    now_ms = worker.clock_ms()
    alive = worker.alive_workers() if any(call.status == "running" for call in work.open_calls) else frozenset()
    return Situation(
        now_ms=now_ms,
        run_ms=execution.run_ms,
        check=_check(work.calls, alive, execution, now_ms) if work.open_calls else Check(),
        bounded=frozenset(call.name for call in work.open_calls if _is_bounded(call.name, execution)),
        cancel=execution.cancel_requests.now(),
    )


def _check(calls: Sequence[Call], alive: frozenset[str], execution: Execution, now_ms: int) -> Check:
    settings = execution.worker.settings
    rules = Rules(
        alive=alive,
        tool=execution.runtime.registry.get,
        # A call may first wait for a free process as long as it may run, and its code be loaded.
        timeout_s=2 * settings.limits.tool_timeout_s + BUILD_S,
        concurrency=settings.tools.concurrency,
        on_timeout=execution.runtime.agent.approval.on_timeout,
    )
    return check(calls, rules, now_ms=now_ms)


def _is_bounded(name: str, execution: Execution) -> bool:
    tool = execution.runtime.tool(name)
    return tool is not None and tool.is_bounded


def _match(work: TurnState, execution: Execution, writer: EventWriter) -> TurnState:
    beside = execution.worker.beside(work.turn, execution.runtime)
    if beside.patterns:
        writer.emit("pattern.matched", {"patterns": list(beside.patterns)})
    if beside.skills:
        writer.emit("skill.used", {"skills": list(beside.skills)})
    return work.matched(beside.text, as_text(execution.recollect().recalled, fence), beside.patterns)


def _call_here(work: TurnState, call: Call, execution: Execution, writer: EventWriter) -> TurnState:
    worker = execution.worker
    now_ms = worker.clock_ms()
    sent = worker.calls.send(work.claim, (call,), now_ms=now_ms)
    sends = sent[0].sends if sent else 0
    running = worker.calls.claim(work.turn.id, call.position, sends, worker=worker.worker, now_ms=now_ms, durable=False)
    tool = execution.runtime.tool(call.name)
    if running is None or tool is None:
        raise Interrupted(f"Call {call.id} was taken by another worker.")
    turn = work.turn
    caller = Caller(turn.lane, turn.session_id, turn.workspace, turn.id, call.id, turn.agent)
    outcome = worker.run_tool(tool, call.arguments, caller)
    done = replace(worker.concluded(running, outcome, caller), finished_ms=worker.clock_ms())
    return _close(work, (done,), execution, writer)


def _approve(work: TurnState, calls: Sequence[Call], execution: Execution) -> TurnState:
    """Store that nobody said no in time; where somebody did just now, that is found at the next entry."""
    for call in calls:
        if not execution.worker.calls.approve(work.turn.id, call):
            raise Interrupted(f"Call {call.id} was decided by a person meanwhile.")
    return work.with_calls(calls)


def _close(work: TurnState, calls: Sequence[Call], execution: Execution, writer: EventWriter) -> TurnState:
    """Store ends of calls; where another result came first, that one stays and is found at the next entry."""
    for call in calls:
        if execution.worker.calls.close(work.turn.id, call) is None:
            raise Interrupted(f"Call {call.id} got its result from elsewhere.")
        writer.emit("tool_call.completed", call.as_json())
    return work.with_calls(calls)


def _pause_ms(work: TurnState, error: Transient) -> int:
    wanted_s = error.retry_after_s if isinstance(error, Overloaded) else None
    pause_s = max(wanted_s or 0.0, float(2 ** (work.waits + 1)))
    return int(min(pause_s, MAX_WAIT_S) * 1000)


def _reason(error: Exception) -> str:
    return "provider" if isinstance(error, ProviderFailed) else "context"
