"""A turn ends: its answer, its cost and its webhook in one transaction; then, and only then, the events."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from loom_worker.core import crash_points, metrics
from loom_worker.core.log_context import turn_ids
from loom_worker.core.values.audit import NOT_RUN
from loom_worker.core.values.calls import CANCELLED, Call
from loom_worker.core.values.children import OutputRef
from loom_worker.core.values.ids import lasted_ms, new_id, now_us
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.patterns import PatternUse
from loom_worker.core.values.sessions import Message
from loom_worker.core.values.spans import span_id_of
from loom_worker.core.values.tools import Outcome
from loom_worker.core.values.traces import Interval, TurnTrace
from loom_worker.core.values.turns import CancelAction, Ending, Turn
from loom_worker.events.log import Unsent
from loom_worker.events.writer import EventWriter
from loom_worker.lanes.lanes import Advanced
from loom_worker.lanes.lease_renewer import HeldLease
from loom_worker.memory.layers import message_tokens
from loom_worker.store.journal import Final
from loom_worker.trace.call_spans import last_request
from loom_worker.turn.channel import parts_of
from loom_worker.turn.children import by_reference, tell_others
from loom_worker.turn.context import counted, is_pressed, kernel_of, over_bound
from loom_worker.turn.reporting import tell_end
from loom_worker.turn.state import TurnState
from loom_worker.turn.transcript import said, usage_of
from loom_worker.turn.worker import Execution, TurnWorker

log = logging.getLogger(__name__)


SPANS, SPANS_OF_REPLY, SPANS_OF_CALL = 6, 2, 2
"""About as many as a turn has, for when its spans are sent: those of every turn, of each reply, of each tool call."""


def end(state: TurnState, ending: Ending, execution: Execution, writer: EventWriter) -> None:
    """Commit the end of a turn, then tell readers, the lane and the webhook.

    Raises:
        Fenced: another worker owns the turn; nothing was written or sent.
        Overruled: the client asked for a different end, or has set another webhook; nothing was written or sent.
        Interrupted: a call that had no result has one now; nothing was written or sent.
        Unavailable: the database refused; there is no answer.
    """
    worker, now_ms = execution.worker, execution.worker.clock_ms()
    patterns = patterns_of(state, worker.knowledge.version_of)
    state = replace(state.reported_to(execution.webhook.known), patterns=patterns)
    began_us = now_us()
    ending = with_error_id(state, _in_parts(ending, state, execution), execution)
    error_stored = Interval(began_us, now_us()) if ending.error else None
    turn = finished(state, ending, cancel=execution.cancel_requests.known, now_ms=now_ms, run_ms=execution.clock.ms())
    delivery = Delivery.of(turn, worker.bodies.of(turn), now_ms=now_ms) if turn.webhook else None
    crash_points.reached("turn.ending")
    messages = _messages(state, execution, now_ms) if ending.leaves_messages else ()
    is_due = bool(messages) and _makes_work(messages, state, execution)
    final = Final(
        ending=ending,
        progress={**execution.progress(state), "judge": turn.judge, "run_ms": turn.run_ms, "completed_ms": now_ms},
        entries=state.unsaved,
        open_calls=len(state.open_calls),
        waits_for_children=any(call.is_awaiting and call.child_turn_id is not None for call in state.calls),
        said=messages,
        delivery=delivery,
        spent=state.usage_by_model,
        tool_calls=sum(call.sends > 0 for call in state.calls),
        settlement=execution.settlement(state),
        rom=execution.session.rom if state.replies else None,
        known_cancel=turn.cancel,
        agent_version=turn.agent_version,
        learned_part=_learned_part(execution) if state.replies else None,
        token_correction=state.correction,
        memory_seen=execution.session.memory.state.version if state.replies else None,
        memory_due=is_due,
        uses=uses(state.patterns),
        has_succeeded=has_succeeded(ending, turn.judge),
        all_calls=turn.calls,
        verdicts=state.verdicts,
        decisions=[*(each for step in state.steps for each in step.payload.get("guard", ())), *_judged(state)],
        output_ref=_output_ref(turn, messages, execution),
        trace=replace(_trace(state, execution), error_stored=error_stored),
        is_exported=worker.traces.exports and not state.claim.trace.is_unsampled,
    )
    children = execution.write(partial(worker.journal.finish, state.claim, final))
    measure(turn, state)
    crash_points.reached("turn.ended")
    log.info("turn.%s", turn.status, extra=log_ids(turn))
    tell_end(turn, worker.monitor)
    _tell_readers(turn, execution, writer)
    worker.traces.added(SPANS + SPANS_OF_REPLY * len(state.replies) + SPANS_OF_CALL * len(state.calls))
    _send_what_follows(turn, final, worker)
    tell_others(turn, children, worker)


def _makes_work(messages: Sequence[Message], state: TurnState, execution: Execution) -> bool:
    tiers = execution.runtime.agent.tiers
    must_embed = tiers is not None and tiers.has_embeddings
    if must_embed:
        return True
    session, runtime, claim = execution.session, execution.runtime, state.claim
    ratio = over_bound(runtime, state.correction)
    return is_pressed(runtime, session.memory, messages, rom=session.rom, kernel=kernel_of(claim), ratio=ratio)


def _send_what_follows(turn: Turn, final: Final, worker: TurnWorker) -> None:
    if final.delivery is not None:
        worker.dispatcher.deliver(final.delivery.id)
    if final.memory_due:
        worker.dispatcher.summarize(turn.lane)


def _learned_part(execution: Execution) -> Json | None:
    part = execution.session.made_rom.learned
    return None if part is None else part.as_json()


def _tell_readers(turn: Turn, execution: Execution, writer: EventWriter) -> None:
    kind, worker = f"turn.{turn.status}", execution.worker
    if worker.is_isolated:  # its parent holds the lease, and gives the lane back itself
        writer.emit(kind, turn.as_json())
    else:
        worker.renewer.let_go(execution.held)  # a beat in between would write the lease of the idle lane again
        writer.end(kind, turn.as_json(), partial(_tell_and_leave, execution.held, turn, worker))


def _trace(state: TurnState, execution: Execution) -> TurnTrace:
    claim = state.claim
    total = claim.spent + state.usage
    session = {
        "turns": state.turn.seq,
        "tokens": total.tokens,
        "cost_usd": None if total.cost_usd is None else float(total.cost_usd),
    }
    return replace(claim.trace, failed_call=execution.watch.calls.left(), session=session)


def _output_ref(turn: Turn, messages: Sequence[Message], execution: Execution) -> OutputRef | None:
    """A long answer that another agent is to read, stored apart from it; None: it is short, or none is to read it."""
    last = messages[-1].chat if messages else None
    if last is None or last.role != "assistant" or not (turn.ancestors or turn.run_id):
        return None
    return by_reference(last.text, turn, "output", execution)


def _in_parts(ending: Ending, state: TurnState, execution: Execution) -> Ending:
    text, channel = ending.output_text, state.turn.channel
    if channel is None or text is None:
        return ending
    if execution.shape is None:
        return replace(ending, output_parts=parts_of(text, channel))
    most = channel.max_chars or len(text) or 1  # joined, the parts of JSON are the same JSON
    return replace(ending, output_parts=tuple(text[at : at + most] for at in range(0, len(text), most)))


def with_error_id(state: TurnState, ending: Ending, execution: Execution) -> Ending:
    """Store why a turn failed, for those who must find out more than the client is told; name the error stored.

    It is stored before the turn ends: where a crash comes between, the next attempt stores another one, and none is
    named that does not exist.
    """
    if ending.status != "failed" or ending.error is None:
        return ending
    watch, is_models = execution.watch, ending.reason == "provider"
    part = last_request(state.steps, watch.calls.left()) if is_models else ()
    detail = f"Model: {watch.model}" if is_models else ""
    why = Outcome("failed", ending.error["message"], code=ending.error["type"], detail=detail)
    failures = execution.worker.tools.failures
    error_id = failures.keep_turn(state.turn, why, span_id=span_id_of(state.turn.id, *part))
    return replace(ending, error={**ending.error, "error_id": error_id})


def leave(held: HeldLease, turn: Turn, worker: TurnWorker) -> None:
    """Go on behind a turn that has ended and whose readers know of it."""
    worker.renewer.let_go(held)  # a beat in between would write the lease of the idle lane again
    slot, wait_s = worker.slots.offer()
    _go_on(held, worker.lanes.advance(held.lease, turn.seq, slot=slot, wait_s=wait_s), worker, slot if wait_s else "")


def _tell_and_leave(held: HeldLease, turn: Turn, worker: TurnWorker, unsent: Unsent) -> int | None:
    """Write a turn's last events and go on, in one round trip; returns what EventLog.append would return."""
    slot, wait_s = worker.slots.offer()
    last, advanced = worker.signals.ended(unsent, held.lease, turn.seq, slot=slot, wait_s=wait_s)
    _go_on(held, advanced, worker, slot if wait_s else "")
    return unsent.appended(last)


def _go_on(held: HeldLease, advanced: Advanced, worker: TurnWorker, waits_as: str) -> None:
    held.kept = advanced.lease
    held.free_as = "" if advanced.lease else waits_as
    if advanced.must_wake:
        worker.dispatcher.wake(held.lease.lane)


def log_ids(turn: Turn) -> Json:
    """What a log line about an ended turn names: ids and figures, nothing that anyone wrote."""
    return {
        **turn_ids(turn),
        "request": turn.request_id,
        "status": turn.reason or turn.status,
        "duration_ms": turn.run_ms,
    }


def finished(state: TurnState, ending: Ending, *, cancel: CancelAction | None = None, now_ms: int, run_ms: int) -> Turn:
    """The turn as every reader will find it from now on."""
    closed = tuple(
        replace(call, status="cancelled", started_ms=None, finished_ms=now_ms, content=CANCELLED)
        if call.is_open
        else call
        for call in state.calls
    )
    return replace(
        state.turn,
        status=ending.status,
        reason=ending.reason,
        deaths=0 if state.has_got_on else state.turn.deaths,
        output_text=ending.output_text,
        output_parts=ending.output_parts,
        error=ending.error,
        usage=state.usage,
        patterns=state.patterns,
        first_token_ms=state.first_token_ms,
        judge=state.judge if ending.leaves_messages else None,
        calls=closed,
        completed_ms=now_ms,
        run_ms=run_ms,
        position=0,
        cancel=cancel,
    )


def _messages(state: TurnState, execution: Execution, now_ms: int) -> tuple[Message, ...]:
    turn, runtime = state.turn, execution.runtime
    return tuple(
        Message(
            id=new_id("msg_"),
            session_id=turn.session_id,
            turn_id=turn.id,
            chat=chat,
            token_count=message_tokens(chat, runtime.count),
            created_ms=now_ms if turn.said_ms is None else turn.said_ms,
            usage=usage_of(usage),
        )
        for chat, usage in ((counted(runtime, each), usage) for each, usage in said(state))
    )


LOADS = "load_pattern"
"""The tool by which a model asks for a pattern itself."""
NOT_THEIRS = frozenset({"provider", "dead", "budget", "deadline"})
"""Reasons for a failure that no pattern can have brought about."""


def patterns_of(state: TurnState, version_of: Callable[[str], str | None]) -> tuple[Json, ...]:
    """The patterns added to the message, then those that the model asked for; each once.

    Args:
        version_of: gives the digest of a pattern's text as it reads now; None where there is none any more.
    """
    known = {str(pattern["id"]) for pattern in state.patterns}
    asked = [str(call.arguments.get("id")) for call in state.calls if call.name == LOADS and call.status == "completed"]
    loaded = [pattern_id for pattern_id in dict.fromkeys(asked) if pattern_id not in known]
    versions = {pattern_id: version_of(pattern_id) for pattern_id in loaded}
    more = [
        {"id": pattern_id, "score": None, "version": version, "how": "loaded"}
        for pattern_id, version in versions.items()
        if version is not None
    ]
    return (*state.patterns, *more)


def uses(patterns: Sequence[Json]) -> tuple[PatternUse, ...]:
    """The patterns of a turn as they are counted."""
    return tuple(
        PatternUse(each["id"], each["version"], "loaded" if each.get("how") == "loaded" else "matched")
        for each in patterns
        if each.get("version")
    )


def _judged(state: TurnState) -> Iterator[Json]:
    for judged in state.judged.values():
        for verdict in judged["verdicts"]:
            outcome = {True: "passed", False: "failed"}.get(verdict["passed"], verdict["status"])
            yield {"kind": "judge", "name": verdict["name"], "outcome": outcome}


def has_succeeded(ending: Ending, judge: Json | None = None) -> bool | None:
    """Whether the turn's patterns did well: True of an answer that its judges did not fail.

    None where somebody stopped it, or where it failed for what has nothing to do with them.
    """
    if ending.status == "completed":
        return judge is None or judge["passed"] is not False
    return None if ending.status == "cancelled" or ending.reason in NOT_THEIRS else False


def measure(turn: Turn, state: TurnState) -> None:
    """Observe a turn once it is committed that it has ended.

    Args:
        turn: as every reader finds it, with all of its calls.
    """
    metrics.TURN_DURATION.observe((lasted_ms(turn.created_ms, turn.completed_ms) or 0) / 1000, turn.status)
    metrics.TURN_RUN.observe(turn.run_ms / 1000, turn.status)
    if (waited_ms := lasted_ms(turn.created_ms, turn.started_ms)) is not None:
        metrics.TURN_QUEUE_WAIT.observe(waited_ms / 1000)
    if turn.first_token_ms is not None:
        metrics.TURN_FIRST_TOKEN.observe(turn.first_token_ms / 1000)
    for call in turn.calls:
        _measure_call(call)
    for verdict in state.verdicts:
        metrics.JUDGE_VERDICTS.count(verdict.name, "cancelled" if verdict.is_open else verdict.status)
        if verdict.score is not None:
            metrics.JUDGE_SCORES.observe(verdict.score, verdict.name)
    _measure_patterns(turn, state)


def _measure_call(call: Call) -> None:
    """A call that nobody ran counts under a name of its own: the model's may be any text."""
    is_known = call.sends > 0 or call.approval is not None
    tool = call.name if is_known else NOT_RUN
    metrics.TOOL_CALLS.count(tool, call.status)
    if call.duration_ms is not None:
        metrics.TOOL_DURATION.observe(call.duration_ms / 1000, tool)


def _measure_patterns(turn: Turn, state: TurnState) -> None:
    used = [(str(each["id"]), "loaded" if each.get("how") == "loaded" else "matched") for each in turn.patterns]
    for pattern, how in used:
        metrics.PATTERN_HITS.count(pattern, how)
    if state.is_matched:
        is_hit = any(how == "matched" for _, how in used)
        metrics.PATTERN_LOOKUPS.count("hit" if is_hit else "miss")
