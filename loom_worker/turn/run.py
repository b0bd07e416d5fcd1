"""The loop: one decision after the other, every reply saved before anything else has an effect."""

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from loom_worker.core import crash_points
from loom_worker.core.errors import (
    BudgetExceeded,
    BudgetHeld,
    BudgetSpent,
    Interrupted,
    Overloaded,
    Overruled,
    ProviderFailed,
    Rejected,
    Transient,
    Unavailable,
)
from loom_worker.core.text import fence
from loom_worker.core.values.calls import Call
from loom_worker.core.values.guardrails import INJECTION
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import Verdict
from loom_worker.core.values.notifications import Delivery, Event
from loom_worker.core.values.traces import Interval
from loom_worker.core.values.turns import Claim, Ending, Step
from loom_worker.core.values.waiting import Waiting
from loom_worker.events.rebuild import rebuild
from loom_worker.events.writer import DELTA, EventWriter
from loom_worker.guard import rails
from loom_worker.guard.rails import Checked
from loom_worker.llm.model import PaidTry
from loom_worker.memory.recalled import as_text
from loom_worker.store.journal import Entries
from loom_worker.tools.pool import BUILD_S
from loom_worker.turn import children, judging
from loom_worker.turn.decide import (
    Approve,
    Ask,
    AskJudges,
    AskPerson,
    BeginChildren,
    CallHere,
    CheckForm,
    Close,
    Conclude,
    End,
    FanOut,
    GiveUp,
    Match,
    Receive,
    Situation,
    Wait,
    WaitForAgents,
    decide,
    failed,
    over_budget,
)
from loom_worker.turn.ending import end
from loom_worker.turn.filtering import allowed
from loom_worker.turn.judging import NO_PANEL, Conclusion
from loom_worker.turn.reply import ask, retell
from loom_worker.turn.reporting import call_work, tell_call, tell_closed, tell_given_up, tell_wait
from loom_worker.turn.state import TurnState
from loom_worker.turn.tool_plan import CallRules, Check, check
from loom_worker.turn.waits import log_wait, named_ms
from loom_worker.turn.worker import Execution

log = logging.getLogger(__name__)

MAX_WAIT_S = 60.0
"""The longest pause for a busy provider before it is asked again."""
HELD_MS = 2_000
"""The pause while other calls have set aside what a budget has left; it counts as running time."""


@dataclass(frozen=True, slots=True)
class Parked:
    """The turn must wait; its slot is free meanwhile."""

    state: TurnState
    wait_ms: int
    """After this it looks again, should nobody wake it."""
    calls: tuple[Call, ...] = ()
    """To be sent to the tool queue."""
    verdicts: tuple[Verdict, ...] = ()
    """To be sent to the judge queue."""


@dataclass(frozen=True, slots=True)
class Done:
    """The turn ends."""

    state: TurnState
    ending: Ending


def advance(claim: Claim, execution: Execution) -> None:
    """Run a turn that is ours until it waits or has ended; every step is saved before the next one."""
    state = TurnState.begin(claim)
    with closing(_writer(claim, execution)) as writer:
        state = _taken_up(state, execution, writer)
        is_over = False
        while not is_over:
            match run(state, execution, writer):
                case Parked(state) as parked:
                    park(parked, execution, writer)
                    is_over = True
                case Done(state, ending):
                    state = state.with_events(writer.take_log())
                    is_over = _has_ended(state, ending, execution, writer)


def run(state: TurnState, execution: Execution, writer: EventWriter) -> Parked | Done:
    """Advance a turn until it must wait or has ended.

    Raises:
        Fenced: another worker owns the turn.
        Interrupted: this worker must stop, or lost the turn.
        Unavailable: the database did not answer.
    """
    worker = execution.worker
    park_ms = int(worker.settings.lanes.park_check_s * 1000)
    while True:
        decision = decide(state, execution.limits, situation(state, execution))
        # What has its answer is ended even while the worker stops: there may be no other to do it.
        if execution.ownership.is_lost() or (worker.stopping.is_asked and not isinstance(decision, End)):
            saved(state, execution, writer)  # a reply that was paid for is kept, if the turn is still ours
            raise Interrupted("The turn is left to another worker.")
        match decision:
            case Match():
                begun = _begin(state, execution, writer)
                if isinstance(begun, Done):
                    return begun
                state = begun
            case Ask(may_call_tools):
                asked = _ask(saved(state, execution, writer), execution, writer, may_call_tools=may_call_tools)
                if not isinstance(asked, TurnState):
                    return asked
                state = asked
            case CallHere(call):
                state = _call_here(saved(state, execution, writer), call, execution, writer)
            case Close(calls):
                state = children.close(saved(state, execution, writer), calls, execution, writer)
                tell_closed(calls, state.turn, execution.runtime, worker.monitor)
            case BeginChildren(calls):
                state = children.begin(saved(state, execution, writer), calls, execution, writer)
            case Receive(call):
                state = children.receive(saved(state, execution, writer), call, execution, writer)
            case WaitForAgents(until_ms):
                return Parked(state, children.pause_ms(until_ms, now_ms=worker.clock_ms()))
            case Approve(calls):
                state = _approve(saved(state, execution, writer), calls, execution)
            case FanOut(calls):
                return Parked(state, park_ms, calls=calls)
            case CheckForm(answer, may_correct):
                state = _check_form(saved(state, execution, writer), answer, execution, may_correct=may_correct)
            case AskJudges(verdicts):
                return Parked(state, park_ms, verdicts=verdicts)
            case GiveUp(verdicts):
                state = _give_up(saved(state, execution, writer), verdicts, execution)
            case Conclude(conclusion):
                state = _conclude(state, conclusion, execution, writer)
            case Wait():
                return Parked(state, park_ms)
            case AskPerson(until_ms):
                return Parked(state, max(until_ms - worker.clock_ms(), 1))
            case End(ending):
                return Done(state, ending)


def _ask(
    state: TurnState, execution: Execution, writer: EventWriter, *, may_call_tools: bool
) -> TurnState | Parked | Done:
    """Ask the model; or why the turn must wait, or ends, for want of a reply."""
    execution.watch.begin(state, writer, clock=execution.clock)
    try:
        state = ask(state, execution, writer, may_call_tools=may_call_tools)
    except Unavailable:
        raise
    except Transient as error:
        pause_ms = _pause_ms(state, error, execution)
        state = execution.with_tries(state).waited(str(error), execution.watch.parked(error, pause_ms))
        return Parked(state, pause_ms)
    except BudgetHeld:
        execution.clock.add(HELD_MS)
        return Parked(execution.with_tries(state), HELD_MS)
    except BudgetSpent as error:
        return Done(execution.with_tries(state), over_budget(state, str(error)).ending)
    except (ProviderFailed, BudgetExceeded) as error:
        kind = "provider" if isinstance(error, ProviderFailed) else "context"
        return Done(execution.with_tries(state), failed(state, kind, str(error)).ending)
    crash_points.reached("turn.replied")
    return state


def park(parked: Parked, execution: Execution, writer: EventWriter) -> None:
    """Free the slot: first the database, then the lane, and only then anyone who could wake it."""
    worker, lane, now_ms = execution.worker, parked.state.turn.lane, execution.worker.clock_ms()
    state, calls = _marked_calls(parked.state, parked.calls, execution, now_ms)
    state, verdicts = _marked_verdicts(state, parked.verdicts, execution, now_ms)
    log_wait(state, worker.waits, now_ms=now_ms)
    asks = {"status": "requires_action"} if any(call.is_waiting for call in state.calls) else {}
    until_ms, trace = now_ms + parked.wait_ms, state.claim.trace_until(now_us(), "parked").as_json()
    save(state, execution, writer, {"held_by": None, "parked_until_ms": until_ms, "trace": trace, **asks})
    tell_wait(state, parked.wait_ms, execution)
    writer.flush()  # before others write: tool workers tell of their results
    must_wake = worker.lanes.park(execution.held.lease, wait_ms=parked.wait_ms)
    # An alert that our lease renewer has taken is not in the lane any more, even if nobody has reacted yet.
    if must_wake or (execution.cancel_requests.is_alerted and worker.lanes.alert(lane)):
        worker.dispatcher.wake(lane)
    turn_id = state.turn.id
    if calls:
        # A chord of some calls ends before the last one does, whose signal must not be taken for the same.
        part = ":part" if len(calls) < len(state.open_calls) else ""
        worker.dispatcher.fan_out(lane, turn_id, calls, ticket(turn_id, calls[0].reply_n) + part)
    for verdict in verdicts:
        worker.dispatcher.judge(turn_id, verdict)


def _marked_calls(
    state: TurnState, calls: Sequence[Call], execution: Execution, now_ms: int
) -> tuple[TurnState, tuple[Call, ...]]:
    """Mark calls as sent; the state with them, and those that are to be sent."""
    worker, new = execution.worker, {call.position for call in state.unsaved_calls}
    sent = tuple(replace(call, sends=1, sent_ms=now_ms) for call in calls if call.position in new)
    again = tuple(call for call in calls if call.position not in new)
    if any(call.sends for call in again):
        log.warning("tool calls sent again", extra={"turn": state.turn.id})
    if again:
        sent += worker.calls.send(state.claim, again, now_ms=now_ms)
    return state.with_calls(sent), sent


def _marked_verdicts(
    state: TurnState, verdicts: Sequence[Verdict], execution: Execution, now_ms: int
) -> tuple[TurnState, tuple[Verdict, ...]]:
    if not verdicts or not state.verdicts_on(verdicts[0].reply_n):
        return state.asked_judges(verdicts), tuple(verdicts)
    log.warning("judges asked again", extra={"turn": state.turn.id})
    sent = execution.worker.verdicts.send(state.claim, verdicts, now_ms=now_ms)
    return state.with_verdicts(sent), sent


def ticket(turn_id: str, reply_n: int) -> str:
    """What makes all signals of one fan-out the same: those of a reply's calls, or of its judges."""
    return f"{turn_id}:{reply_n}"


def saved(state: TurnState, execution: Execution, writer: EventWriter) -> TurnState:
    """Write to the journal what would have to be paid for again; the rest can go with the next step."""
    return save(state, execution, writer, {}) if state.has_progress else state


def save(state: TurnState, execution: Execution, writer: EventWriter, columns: Json) -> TurnState:
    """Write all there is to the journal.

    Args:
        columns: of the turn's row, to be changed in the same transaction.
    """
    state = state.with_events(writer.take_log())
    columns = {**execution.progress(state), **columns}
    delivery = _asking(state, execution)
    settlement = execution.settlement(state)
    journal, entries = execution.worker.journal, state.unsaved
    execution.write(partial(journal.save, state.claim, entries, columns, delivery=delivery, settlement=settlement))
    writer.saved()
    crash_points.reached("turn.journaled")
    if delivery is not None:
        execution.worker.dispatcher.deliver(delivery.id)
    return state.saved()


def _asking(state: TurnState, execution: Execution) -> Delivery | None:
    """The webhook about calls that wait for a person, once for each reply with such calls."""
    is_asked = any(call.is_waiting for call in state.unsaved_calls)
    webhook = execution.webhook.look() if is_asked else None
    if webhook is None:
        return None
    now_ms = execution.worker.clock_ms()
    done = replace(state.turn, webhook=webhook, usage=state.usage, patterns=state.patterns, calls=state.calls)
    turn = replace(done, status="requires_action", waiting=Waiting("person", now_ms))
    return Delivery.of(turn, execution.worker.bodies.of(turn), now_ms=now_ms)


def situation(state: TurnState, execution: Execution) -> Situation:
    """Look around; tools and other workers are asked after only if calls are under way."""
    worker = execution.worker
    now_ms = worker.clock_ms()
    under_way = {*(call.status for call in state.open_calls), *(verdict.status for verdict in state.open_verdicts)}
    alive = worker.workers.alive() if "running" in under_way else frozenset()
    panel, names = execution.runtime.agent.judges, {call.name for call in state.open_calls}
    in_place = "tool_result" not in execution.runtime.checks  # a model that is asked about results takes its time
    return Situation(
        now_ms=now_ms,
        run_ms=execution.clock.ms(),
        check=_check(state.calls, alive, execution, now_ms) if state.open_calls else Check(),
        bounded=frozenset(n for n in names if (tool := execution.runtime.tool(n)) and tool.is_bounded and in_place),
        cancel=execution.cancel_requests.now(),
        own_limits=execution.own_limits,
        is_shaped=execution.shape is not None,
        panel=panel,
        agents=children.check(state.calls, execution, now_ms=now_ms),
        verdicts=judging.check(state.open_verdicts, panel or NO_PANEL, alive, now_ms=now_ms),
    )


def _check(calls: Sequence[Call], alive: frozenset[str], execution: Execution, now_ms: int) -> Check:
    settings = execution.worker.settings
    rules = CallRules(
        alive=alive,
        tools=execution.runtime.registry,
        # A call may first wait for a free process as long as it may run, and its code be loaded.
        timeout_s=2 * settings.limits.tool_timeout_s + BUILD_S,
        concurrency=settings.tools.concurrency,
        on_timeout=execution.runtime.agent.approval.on_timeout,
    )
    return check(calls, rules, now_ms=now_ms)


def _begin(state: TurnState, execution: Execution, writer: EventWriter) -> TurnState | Done:
    """Get what the input names, and look for patterns; or how the turn ends, where that cannot be had."""
    try:
        state = _fetched(state, execution)
    except Unavailable:
        raise
    except (Rejected, Transient) as error:
        return Done(state, failed(state, "input", str(error)).ending)
    return _match(state, execution, writer)


def _match(state: TurnState, execution: Execution, writer: EventWriter) -> TurnState:
    checked, began_us = _checked_input(state, execution), now_us()
    if checked is not None and checked.blocked_for:
        return state.matched("", "", (), checked=checked)
    found = execution.worker.knowledge.prompt_context(state.turn, execution.runtime)
    took = Interval(began_us, now_us())
    if found.patterns:
        writer.emit("pattern.matched", {"patterns": list(found.patterns)})
    if found.skills:
        writer.emit("skill.used", {"skills": list(found.skills)})
    recalled = as_text(execution.session.memory.recalled, fence)
    return state.matched(found.text, recalled, found.patterns, took=took, checked=checked)


def _fetched(state: TurnState, execution: Execution) -> TurnState:
    """The turn with the files that URLs in its input name, each fetched once; a guardrail looks at texts among them.

    Raises:
        Rejected, Transient: one cannot be had, or may not be used.
    """
    turn = state.turn
    parts, text = list(turn.parts), turn.input
    for place, part in enumerate(turn.parts):
        if part.url is None or part.said not in text:  # it is there already
            continue
        parts[place] = found = execution.worker.tools.files.fetched(turn, place)
        said = f"{found.shown_name}\n{found.text}"
        checked = rails.check("input", said, execution.guardrails.input)
        if checked.blocked_for or checked.kept != said:
            raise Rejected(f"A guardrail refuses the content of {part.url}.", "guardrail-blocked")
        text = text.replace(part.said, found.said, 1)
    if text == turn.input:
        return state
    columns = {"input": text, "parts": [part.as_row() for part in parts]}
    execution.write(partial(execution.worker.journal.save, state.claim, Entries(), columns))
    turn = replace(turn, input=text, parts=tuple(parts))
    return replace(state, claim=replace(state.claim, turn=turn))


def _checked_input(state: TurnState, execution: Execution) -> Checked[str] | None:
    """A model's verdict on what the user says, if the agent's file names one; what it would take out is blocked."""
    check, turn, known = execution.runtime.checks.get("input"), state.turn, tuple(state.turn.guard or ())
    if check is None:
        return None
    rules = execution.guardrails.input
    found = check.after(Checked(turn.input, known), rules, execution.caller())
    is_one = found.kept != turn.input or found.blocked_for
    return replace(found, decisions=found.decisions[len(known) :], blocked_for=(INJECTION,) if is_one else ())


def _call_here(state: TurnState, call: Call, execution: Execution, writer: EventWriter) -> TurnState:
    worker = execution.worker
    now_ms = worker.clock_ms()
    sent = worker.calls.send(state.claim, (call,), now_ms=now_ms)
    sends = sent[0].sends if sent else 0
    running = worker.calls.claim(state.turn.id, call.position, sends, worker=worker.name, now_ms=now_ms, durable=False)
    tool = execution.runtime.tool(call.name)
    if running is None or tool is None:
        raise Interrupted(f"Call {call.id} was taken by another worker.")
    caller = execution.caller(call.id)
    work = call_work(running, caller, is_known=True)
    worker.monitor.started(work)
    ran, rules = worker.tools.run(tool, call.arguments, caller), execution.guardrails.tool_result
    outcome = allowed(ran, rules, execution.runtime, caller)
    done = replace(worker.tools.with_outcome(running, outcome, caller), finished_ms=worker.clock_ms())
    state = children.close(state, (done,), execution, writer)
    tell_call(work, done, outcome.code, worker.monitor)
    return state


def _approve(state: TurnState, calls: Sequence[Call], execution: Execution) -> TurnState:
    """Store that nobody said no in time; where somebody did just now, that is found at the next entry."""
    for call in calls:
        if not execution.worker.calls.approve(state.turn.id, call):
            raise Interrupted(f"Call {call.id} was decided by a person meanwhile.")
    return state.with_calls(calls)


def _check_form(state: TurnState, answer: Step, execution: Execution, *, may_correct: bool) -> TurnState:
    """Hold the answer, as a reader has it, against its form in a child process: a schema may take for ever."""
    schema = execution.shape.schema if execution.shape else {}
    violation = execution.worker.judges.fits(state.said or "", schema, execution.caller("form")).critique
    crash_points.reached("form.checked")
    correction = judging.reshaping(violation, answer) if violation and may_correct else ""
    return state.held_against_form(answer, violation, correction=correction)


def _give_up(state: TurnState, dead: Sequence[Verdict], execution: Execution) -> TurnState:
    if not execution.worker.verdicts.give_up(state.claim, dead):
        raise Interrupted(f"A judge of turn {state.turn.id} gave its verdict after all.")
    tell_given_up(dead, state.turn, execution.worker.monitor)
    return state.with_verdicts(dead)


def _conclude(state: TurnState, found: Conclusion, execution: Execution, writer: EventWriter) -> TurnState:
    threshold = found.threshold
    verdicts = [verdict.as_json(threshold) for verdict in state.verdicts_on(found.answer.n)]
    state = state.concluded(found.answer, found.judgement, verdicts=verdicts, correction=found.correction)
    writer.emit("judge.verdict", {**(state.judge or {}), "is_last": not found.correction})
    log.info("judge.verdict", extra={"status": str(found.judgement.score)})
    crash_points.reached("judge.concluded")
    return state


def _pause_ms(state: TurnState, error: Transient, execution: Execution) -> int:
    """How long to wait before the model is asked again; what the provider did not name of it is running time."""
    wanted_s = error.retry_after_s if isinstance(error, Overloaded) else None
    pause_ms = int(min(max(wanted_s or 0.0, float(2 ** (state.waits + 1))), MAX_WAIT_S) * 1000)
    left_ms = max(0, int(execution.limits.turn_timeout_s * 1000) - execution.clock.ms())
    own_ms = min(max(0, pause_ms - named_ms(error)), left_ms)
    execution.clock.add(own_ms)
    return max(1, min(pause_ms, named_ms(error) + own_ms))


def _has_ended(state: TurnState, ending: Ending, execution: Execution, writer: EventWriter) -> bool:
    """End the turn; False if a cancel request, or another webhook, came before its end: the next decision finds it."""
    try:
        end(state, ending, execution, writer)
    except Overruled:
        execution.cancel_requests.are_missed()
        execution.webhook.look()
        return False
    return True


def _writer(claim: Claim, execution: Execution) -> EventWriter:
    worker, turn = execution.worker, claim.turn
    first = 2 if turn.fence == 1 else None  # behind turn.queued
    journaled = partial(rebuild, turn, claim.steps)
    return EventWriter(worker.events, turn.id, journaled, flusher=worker.flusher, fence=turn.fence, first=first)


def _taken_up(state: TurnState, execution: Execution, writer: EventWriter) -> TurnState:
    """Tell readers that the turn runs, or runs again; book what requests of earlier owners used, if it is known."""
    turn = state.turn
    if turn.fence == 1:
        writer.emit("turn.started", {"attempt": turn.attempt})
        return state
    orphans = writer.orphans()
    if turn.deaths or any(event.type == DELTA and event.data["text"] for event in orphans):
        retell(state, writer, "the worker that ran it died" if turn.deaths else "another worker goes on with it")
    tries = _tries(orphans)
    if execution.is_limited:
        known = {each.held.id for each in tries if each.held}
        left = [held for held in execution.worker.budgets.unsettled() if held.turn_id == turn.id]
        tries = [*tries, *(PaidTry.untold(held) for held in left if held.id not in known)]
    return execution.with_tries(state, tries)


def _tries(orphans: Sequence[Event]) -> Sequence[PaidTry]:
    """The requests that events tell of, each with the text that readers saw of it."""
    tries: list[PaidTry] = []
    is_new = False  # what follows turn.retrying is told again
    for event in orphans:
        tries += map(PaidTry.from_json, event.tries)
        is_new = bool(event.tries) or (is_new and event.type != "turn.retrying")
        if is_new and event.type == DELTA:
            tries[-1].said.append(event.data["text"])
    return tries
