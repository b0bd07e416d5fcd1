"""What tasks call: a wake-up or a tool call came, a wait is over, an answer is to be judged."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from loom_worker.core import crash_points, log_context
from loom_worker.core.errors import Fenced, Interrupted, LoomError, Unavailable
from loom_worker.core.stopping import retry_until_stored
from loom_worker.core.text import clean, without_middle
from loom_worker.core.values.budgets import Payer, Settlement
from loom_worker.core.values.calls import Call
from loom_worker.core.values.guardrails import StageRules
from loom_worker.core.values.judges import PanelMember, Verdict
from loom_worker.core.values.tools import Caller, Outcome, Tool
from loom_worker.core.values.turns import Claim
from loom_worker.guard.findings import redacted
from loom_worker.guard.rails import check
from loom_worker.judge.evaluate import Evaluation, Judging
from loom_worker.judge.llm import Case
from loom_worker.lanes.lanes import Lease
from loom_worker.lanes.lease_renewer import HeldLease
from loom_worker.llm.model import OnBudget, Revocable
from loom_worker.store.claims import Idle
from loom_worker.store.verdicts import JudgedAnswer
from loom_worker.turn.agent_runtime import AgentRuntime
from loom_worker.turn.control import CancelRequests, Ownership, RunClock, TurnWebhook
from loom_worker.turn.ending import leave
from loom_worker.turn.filtering import allowed
from loom_worker.turn.reporting import call_work, tell_call, tell_verdict, turn_work, verdict_work
from loom_worker.turn.run import advance, ticket
from loom_worker.turn.waits import ModelWatch
from loom_worker.turn.worker import Execution, SessionContext, TurnWorker, guardrails

log = logging.getLogger(__name__)

VERSION_CHARS = 64
"""Characters that are kept of a version that its file declares."""
AGAIN_MS = 1_000
"""A turn that failed in a way we did not foresee is tried again after this; each time counts as an attempt."""


def serve_lane(lane: str, worker: TurnWorker) -> None:
    """Run a lane's next turn, or go on with a parked one; a second wake-up does nothing twice.

    The turns behind it follow in the same thread, as long as no other lane waits for one; then the lanes that wait.
    """
    lease = worker.lanes.take(lane, worker.slots.new_name())
    while lease is not None:
        crash_points.reached("turn.leased")
        held = worker.renewer.hold(lease)
        try:
            _serve_next(held, worker)
        finally:
            worker.renewer.let_go(held)
        lease = held.kept or _another(held, worker)


def _another(held: HeldLease, worker: TurnWorker) -> Lease | None:
    """The lane that this thread runs next, for which it waits a moment; None: it has done enough."""
    return worker.slots.assigned(held.free_as) if held.free_as else worker.slots.next()


def _serve_next(held: HeldLease, worker: TurnWorker) -> None:
    lease = held.lease
    match worker.claims.claim(lease.lane, worker=worker.name, now_ms=worker.clock_ms()):
        case Idle.EMPTY:
            worker.renewer.let_go(held)  # a beat after the next line would write the idle lane's lease again
            _wake_if(worker.lanes.complete(lease, lease.last_seq), lease.lane, worker)
        case Idle.PAUSED:
            worker.renewer.let_go(held)
            worker.lanes.drop(lease)
        case Claim() as claim:
            crash_points.reached("turn.claimed")
            with log_context.about({"request": claim.turn.request_id, **log_context.turn_ids(claim.turn)}):
                serve_claim(claim, held, worker)


def serve_claim(claim: Claim, held: HeldLease, worker: TurnWorker) -> None:
    """Run a turn that is ours, and leave its lane in a state from which it goes on."""
    lane, lease, work = claim.turn.lane, held.lease, turn_work(claim.turn)
    if not worker.is_isolated:  # else its parent has said so
        worker.monitor.started(work)
    if _needs_own_process(claim, worker):
        _run_isolated(claim, held, worker)
        return
    clock = RunClock(claim.turn.run_ms)
    try:
        worker.content.catch_up(lease.content)  # the turn has what any process had accepted when its lane was taken
        claim = worker.agents.keeping(claim)
        runtime = worker.agents.runtime(claim.turn.agent, claim.choice, claim.turn.workspace)
        version, model = runtime.agent.version[:VERSION_CHARS], runtime.model.name or None
        form, agents = claim.turn.response_format, runtime.agent.response_format
        form = {**agents, "by": "agent"} if form is None and agents else form
        claim = replace(claim, turn=replace(claim.turn, agent_version=version, model=model, response_format=form))
        ownership = Ownership(held, worker.claims, claim, lease_s=worker.settings.lanes.lease_s)
        cancel_requests = CancelRequests(
            claim.turn.cancel,
            alerted=held.alerted,
            read=lambda: worker.claims.cancel_action(claim),
            is_isolated=worker.is_isolated,
        )
        session = SessionContext(worker, runtime, claim)
        provider = "a2a" if runtime.agent.remote else f"{runtime.llm.provider}"
        watch = ModelWatch(claim.turn, worker.waits, provider=provider, model=model or "none", clock_ms=worker.clock_ms)
        asked = (ownership, cancel_requests, watch, session, TurnWebhook(worker.claims, claim))
        execution = Execution(worker, claim, runtime, held, clock, *asked)
        advance(claim, execution)
    except (Interrupted, Fenced) as error:
        is_ours = isinstance(error, Interrupted)
        say = log.info if is_ours else log.warning
        say("turn handed over: %s", error, extra={"turn": claim.turn.id})
        if is_ours and _quietly(lambda: worker.claims.release(claim, run_ms=clock.ms())):
            worker.monitor.waits(work, "another worker", run_ms=clock.ms())
        else:  # should another one have it by now, its reports take the place of this
            worker.monitor.cancelled(work, "taken over, or deleted with its session", run_ms=clock.ms())
        _wake_if(worker.lanes.release(lease), lane, worker)
    except Unavailable as error:
        log.warning("turn given back: %s", error, extra={"turn": claim.turn.id})
        worker.monitor.waits(work, "the database", run_ms=clock.ms())
        _quietly(lambda: worker.claims.release(claim, run_ms=clock.ms()))
        _quietly(lambda: worker.lanes.release(lease, wait_ms=AGAIN_MS))
    except Exception as error:  # the top of a task: whatever else failed counts as a death of the owner, and is logged
        log.exception("turn failed unforeseen", extra={"turn": claim.turn.id})
        why = f"another attempt, after {type(error).__name__}"
        worker.monitor.waits(work, why, run_ms=clock.ms())
        worker.lanes.release(lease, wait_ms=AGAIN_MS)


def _run_isolated(claim: Claim, held: HeldLease, worker: TurnWorker) -> None:
    turn = claim.turn
    status = worker.dispatcher.run_isolated(turn.lane, held.lease.token, turn.id, turn.fence)
    if status != 0:
        log.error("turn died in a process of its own", extra={"turn": turn.id, "status": status})
        why = f"its end, as its process died with status {status}"
        worker.monitor.waits(turn_work(turn), why, run_ms=turn.run_ms)
        _wake_if(worker.lanes.release(held.lease), turn.lane, worker)
    elif worker.claims.resume(turn.id, fence=turn.fence) is None:
        leave(held, turn, worker)


def serve_call(turn_id: str, position: int, send: int, worker: TurnWorker) -> None:
    """Run one tool call, store its result, and wake the turn if it was the last. Never raises for what a tool does."""
    owner = worker.calls.owner_of(turn_id, position)
    if owner is None:
        return
    log_context.add(log_context.caller_ids(owner.caller, "tool", owner.caller.call_id))
    worker.content.catch_up()
    runtime = worker.agents.runtime(owner.agent, owner.choice, owner.caller.workspace)
    tool = runtime.tool(owner.tool)
    now_ms = worker.clock_ms()
    durable = tool is not None and not tool.is_idempotent
    call = worker.calls.claim(turn_id, position, send, worker=worker.name, now_ms=now_ms, durable=durable)
    if call is None:
        return
    crash_points.reached("tool.claimed")
    work = call_work(call, owner.caller, is_known=tool is not None)
    worker.monitor.started(work)
    rules = guardrails(runtime.agent, owner.rules).tool_result
    outcome = allowed(_outcome(tool, call, owner.caller, worker), rules, runtime, owner.caller)
    crash_points.reached("tool.ran")
    store = partial(worker.tools.with_outcome, call, outcome, owner.caller)
    done = replace(retry_until_stored(store, stopping=worker.stopping), finished_ms=worker.clock_ms())
    close = partial(worker.calls.close, turn_id, done, concurrency=worker.settings.tools.concurrency)
    left = retry_until_stored(close, stopping=worker.stopping)
    if left is None:
        worker.monitor.cancelled(work, "too late: its turn has ended or went on", run_ms=done.duration_ms or 0)
        return
    crash_points.reached("tool.journaled")
    told = {"tool_name": done.name, "duration_ms": done.duration_ms, "error_id": done.error_id}
    log.info("tool.%s", done.status, extra=told)
    tell_call(work, done, outcome.code, worker.monitor)
    # A log without all that the journal knows is left alone: the turn's next owner restores it, this event with it.
    event = ("tool_call.completed", done.as_json())
    _quietly(partial(worker.events.append, turn_id, [event], least=left.told, fence=left.fence))
    if left.next is not None:
        worker.dispatcher.call(turn_id, left.next)
    if left.under_way == 0:
        serve_wake(owner.caller.lane, ticket(turn_id, call.reply_n), worker)


def _outcome(tool: Tool | None, call: Call, caller: Caller, worker: TurnWorker) -> Outcome:
    if tool is None:  # withdrawn since the model asked; without a result the turn would wait for ever
        return Outcome("failed", f"there is no tool {call.name!r} any more")
    return worker.tools.run(tool, call.arguments, caller)


def serve_verdict(turn_id: str, reply_n: int, position: int, send: int, worker: TurnWorker) -> None:
    """Have one judge look at one answer, store its verdict, and wake the turn if it was the last of the panel."""
    answer = worker.verdicts.answer(turn_id, reply_n)
    if answer is None:
        return
    log_context.add(log_context.caller_ids(answer.caller, "judge", str(reply_n), str(position)))
    worker.content.catch_up()
    runtime = worker.agents.runtime(answer.agent, answer.choice, answer.caller.workspace)
    by, now_ms = worker.name, worker.clock_ms()
    claimed = worker.verdicts.claim(turn_id, reply_n, position, send, worker=by, now_ms=now_ms)
    if claimed is None:
        return
    crash_points.reached("judge.claimed")
    work = verdict_work(claimed, turn_id=turn_id, session_id=answer.caller.session_id)
    worker.monitor.started(work)
    done, settlement = scored(claimed, answer, runtime, worker)
    crash_points.reached("judge.scored")
    store = partial(worker.verdicts.close, answer.caller, done, settlement)
    left = retry_until_stored(store, stopping=worker.stopping)
    crash_points.reached("judge.stored")
    if left is None:
        worker.monitor.cancelled(work, "too late: its turn has ended or went on", run_ms=0)
    else:
        log.info("judge.%s", done.status, extra={"judge": done.name})
        tell_verdict(work, done, worker.monitor)
    if left == 0:  # of a judge that was asked again this is another signal
        serve_wake(answer.caller.lane, f"{ticket(turn_id, reply_n)}:judge:{send}", worker)


def serve_wake(lane: str, turn_ticket: str, worker: TurnWorker) -> None:
    """End a lane's waiting; repeats of a ticket do nothing."""
    _wake_if(worker.lanes.wake(lane, turn_ticket), lane, worker)


def _needs_own_process(claim: Claim, worker: TurnWorker) -> bool:
    """The last attempt of a turn whose owners died runs where it can take no neighbour with it."""
    deaths = claim.turn.deaths
    return not worker.is_isolated and 0 < deaths == claim.turn.max_attempts - 1


def _wake_if(is_needed: bool, lane: str, worker: TurnWorker) -> None:
    if is_needed:
        worker.dispatcher.wake(lane)


def _quietly(action: Callable[[], object]) -> bool:
    """For what another remedy makes good: the sweep, or the journal; False if it failed."""
    try:
        action()
    except LoomError as error:
        log.warning("%s", error)
        return False
    return True


MOST_CHARS = 1_000
"""Characters of a critique, or of why there is none."""


def scored(
    claimed: Verdict, answer: JudgedAnswer, runtime: AgentRuntime, worker: TurnWorker
) -> tuple[Verdict, Settlement | None]:
    """Have a judge look at an answer.

    Returns:
        Its verdict with what that cost, and what it takes off budgets; None: no model was asked.

    Raises:
        Interrupted: the worker stops, or the session was deleted.
    """
    caller, panel = answer.caller, runtime.agent.judges
    payer = Payer(caller.workspace, caller.lane, caller.agent, runtime.agent.budget, caller.turn_id)
    member = panel.member(claimed.name) if panel else None
    if member is None:
        found = Evaluation(None, "The agent's file has no such judge any more.")
    else:
        found = _evaluated(member, answer, runtime, payer, worker)
    opinion, rules = found.opinion, guardrails(runtime.agent, answer.rules).output
    done = replace(
        claimed,
        status="dead" if opinion is None else "undecided" if opinion.is_undecided else "scored",
        score=None if opinion is None else opinion.score,
        critique=_shown(opinion.critique if opinion else "", rules) or None,
        error=None if found.error is None else _shown(redacted(found.error), rules) or "It may not be shown.",
        model=found.model,
        usage=found.usage,
        finished_ms=worker.clock_ms(),
    )
    settlement = Settlement(payer, found.usage.amount(), tuple(found.held)) if found.usage.llm_calls else None
    return done, settlement


def _shown(text: str, rules: StageRules) -> str:
    """What a judge says as everybody may read it: it can quote an answer, and hold what that may not say."""
    found = check("output", without_middle(clean(text), MOST_CHARS), rules)
    return "" if found.blocked_for else found.kept


def _evaluated(
    member: PanelMember, answer: JudgedAnswer, runtime: AgentRuntime, payer: Payer, worker: TurnWorker
) -> Evaluation:
    caller, model, paid = answer.caller, runtime.judge, None
    if model is not None:
        paid = OnBudget(model.model, worker.budgets, payer, model.count)
        # Nothing of a deleted session is sent.
        model = replace(model, model=Revocable(paid, partial(worker.memories.is_there, payer.lane)))
    folder = Path(runtime.agent.file).parent.absolute()
    judging = Judging(functions=worker.judges, folder=folder, caller=caller, model=model, paid=paid)
    case = Case(caller.turn_id, answer.question, answer.answer, answer.results)
    return retry_until_stored(partial(judging.evaluate, member, case), stopping=worker.stopping)
