"""What a monitor is told of turns, their calls and their verdicts: ids, names, and words of Loom's own."""

from collections.abc import Sequence
from dataclasses import replace

from loom_worker.core.monitor import Monitor, Work
from loom_worker.core.values.calls import Call
from loom_worker.core.values.judges import Verdict
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Turn
from loom_worker.turn.agent_runtime import AgentRuntime
from loom_worker.turn.state import TurnState
from loom_worker.turn.worker import Execution


def turn_work(turn: Turn) -> Work:
    """A turn: one piece of work from its first start to its end, however often it is entered."""
    return Work(
        id=turn.id,
        kind="turn",
        ids=(turn.id, turn.session_id),
        entry=turn.fence,
        accepted_ms=turn.created_ms,
        started_ms=turn.started_ms,
        part_of=turn.run_id,
        names={"agent": turn.agent, "workspace": turn.workspace},
    )


def call_work(call: Call, caller: Caller, *, is_known: bool) -> Work:
    """A tool call.

    Args:
        is_known: the agent has such a tool; else the model may have made its name up, and it is not told.
    """
    return Work(
        id=f"{caller.turn_id}:{call.position}",
        kind="tool",
        ids=(caller.turn_id, caller.session_id, call.id),
        entry=call.sends,
        accepted_ms=call.sent_ms,
        started_ms=call.started_ms,
        part_of=caller.turn_id,
        names={"tool": call.name} if is_known else {},
    )


def verdict_work(verdict: Verdict, *, turn_id: str, session_id: str) -> Work:
    """A judge's look at one answer."""
    return Work(
        id=f"{turn_id}:judge:{verdict.reply_n}:{verdict.position}",
        kind="judge",
        ids=(turn_id, session_id),
        entry=verdict.sends,
        accepted_ms=verdict.sent_ms,
        started_ms=verdict.started_ms,
        part_of=turn_id,
        names={"judge": verdict.name, "type": verdict.type},
    )


def tell_end(turn: Turn, monitor: Monitor) -> None:
    """A turn has ended; one without a whole answer has failed, whatever kept it from it."""
    work, run_ms = turn_work(turn), turn.run_ms
    if turn.status == "completed":
        monitor.succeeded(work, turn.status, run_ms=run_ms)
    elif turn.status == "cancelled":
        monitor.cancelled(work, f"cancelled: {turn.reason}", run_ms=run_ms)
    else:
        error = turn.error or {}
        kind = error.get("type")
        detail = [str(kind)] if kind not in (None, turn.reason) else []
        known = [*detail, *([str(error["error_id"])] if error.get("error_id") else [])]
        why = f"{turn.status}: {turn.reason}" + (f" ({', '.join(known)})" if known else "")
        monitor.failed(work, why, run_ms=run_ms)


def tell_wait(state: TurnState, wait_ms: int, execution: Execution) -> None:
    """A turn is parked.

    Args:
        wait_ms: until it looks again, should nobody wake it.
    """
    what_for = _waits_for(state, wait_ms)
    execution.worker.monitor.waits(turn_work(state.turn), what_for, run_ms=execution.clock.ms())


def _waits_for(state: TurnState, wait_ms: int) -> str:
    if any(call.is_waiting for call in state.open_calls):
        return "a person"
    if state.open_calls and all(call.is_awaiting for call in state.open_calls):
        return f"other agents ({len(state.open_calls)})"
    if state.open_calls:
        return f"tools ({len(state.open_calls)})"
    if state.open_verdicts:
        return f"judges ({len(state.open_verdicts)})"
    return f"the model, which is asked again in {wait_ms / 1000:g} s"


def tell_call(work: Work, call: Call, code: str | None, monitor: Monitor) -> None:
    """A tool call has its result.

    Args:
        code: of a failure; None: it has none, or nobody knows it.
    """
    run_ms = call.duration_ms or 0
    if call.status == "completed":
        monitor.succeeded(work, call.status, run_ms=run_ms)
    elif call.status in ("cancelled", "denied"):
        monitor.cancelled(work, call.status, run_ms=run_ms)
    else:
        monitor.failed(work, f"{call.status}: {code}" if code else call.status, run_ms=run_ms)


def tell_closed(calls: Sequence[Call], turn: Turn, runtime: AgentRuntime, monitor: Monitor) -> None:
    """Calls have results that no tool gave; if one still runs, what it gives is dropped."""
    for call in calls:
        caller = Caller(turn.lane, turn.session_id, turn.workspace, turn.id, call.id, turn.agent)
        work = call_work(call, caller, is_known=runtime.tool(call.name) is not None)
        tell_call(_decided_here(work), call, None, monitor)


def tell_verdict(work: Work, verdict: Verdict, monitor: Monitor) -> None:
    """A judge has given its score, or is dead; a low score is a success of the judge."""
    ms = (verdict.finished_ms or 0) - (verdict.started_ms or verdict.finished_ms or 0)
    if verdict.is_dead:
        monitor.failed(work, verdict.status, run_ms=ms)
    else:
        monitor.succeeded(work, verdict.status if verdict.score is None else f"scored {verdict.score:.4g}", run_ms=ms)


def tell_given_up(dead: Sequence[Verdict], turn: Turn, monitor: Monitor) -> None:
    """Judges are not waited for any more."""
    for verdict in dead:
        work = verdict_work(verdict, turn_id=turn.id, session_id=turn.session_id)
        tell_verdict(_decided_here(work), verdict, monitor)


def _decided_here(work: Work) -> Work:
    """The work as its turn reports it, which has the last word."""
    return replace(work, entry=work.entry + 1)
