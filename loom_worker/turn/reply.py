"""One call of the model: pack the context, stream the answer to the readers, plan its tool calls."""

import logging
from collections.abc import Iterator
from dataclasses import replace

from loom_worker.core import crash_points
from loom_worker.core.errors import BudgetExceeded, Interrupted, PromptTooLong, ProviderFailed, StreamBroken, Transient
from loom_worker.core.values.chat import Reply, ReplyEvent, Request, Restarted, TextDelta, Usage
from loom_worker.core.values.turns import Call
from loom_worker.events.writer import EventWriter
from loom_worker.llm.prices import cost_usd
from loom_worker.memory.fit import Context
from loom_worker.turn.authorization import examiner
from loom_worker.turn.context import build, estimate, kernel_of, layers_of, over_bound, rom_of, shown_tokens
from loom_worker.turn.fencing import as_data
from loom_worker.turn.runtime import Execution
from loom_worker.turn.state import TurnState
from loom_worker.turn.tool_plan import named, planned, used_up
from loom_worker.turn.transcript import after, conversation

log = logging.getLogger(__name__)

REFITS = 5
"""Requests that are tried before a turn is given up as too long."""
TOO_LONG = 1.2
"""By how much more a provider's tokens are taken for, each time it refuses a request as too long."""


def ask(work: TurnState, execution: Execution, writer: EventWriter, *, may_call_tools: bool) -> TurnState:
    """Call the model once and take up its answer; where the client asks it cut, what it said until then.

    Raises:
        BudgetExceeded: the turn does not fit the model's window.
        Transient: the provider is too busy, or its stream broke, also after retries.
        ProviderFailed: the provider refuses.
        Interrupted: this worker must stop, or lost the turn.
    """
    _tell_changes(work, execution, writer)
    ratio = over_bound(execution.runtime, work.correction)
    for _ in range(REFITS):
        context = _context(work, execution, ratio)
        try:
            return _ask(work, execution, writer, context, may_call_tools=may_call_tools)
        except PromptTooLong as error:
            # What is dropped may be what needs fewest tokens: each time it is taken for more than it seems to be.
            learned = _learned(error, context, execution.runtime.input_budget_tokens)
            ratio = max(learned, TOO_LONG * max(ratio, 1.0))
            log.warning("the window is fuller than counted", extra={"turn": work.turn.id, "by": ratio})
    raise BudgetExceeded(
        f"The model's provider finds this turn too long for its window, also after it was shortened {REFITS} times. "
        "Send a shorter message, or set max_context_tokens to the model's real window."
    )


def _learned(error: PromptTooLong, context: Context, budget_tokens: int) -> float:
    """The provider's tokens over our bound, by what it refused, more if its window is smaller than we were told."""
    ratio = error.tokens / sum(context.tokens.values()) if error.tokens else TOO_LONG
    return ratio * max(1.0, budget_tokens / error.limit) if error.limit else ratio


def _ask(
    work: TurnState, execution: Execution, writer: EventWriter, context: Context, *, may_call_tools: bool
) -> TurnState:
    shown = shown_tokens(execution.runtime, context, work.correction)
    writer.emit("context.built", {"tokens": shown, "budget_tokens": execution.runtime.input_budget_tokens})
    crash_points.reached("turn.built")
    stream = execution.runtime.model.reply(_request(context, execution, may_call_tools=may_call_tools))
    try:
        reply, first_token_ms = _listen(stream, work, execution, writer, sent_tokens=sum(shown.values()))
    except (Transient, ProviderFailed) as error:
        if writer.drop_deltas(reply_n=work.next_n):
            retell(work, writer, str(error))
        raise
    except BaseException:
        writer.drop_deltas(reply_n=work.next_n)
        raise
    finally:
        _close(stream)
    ids = frozenset(call.id for call in work.calls)
    reply = replace(reply, tool_uses=named(reply.tool_uses, ids, position=len(work.calls)))
    calls = _calls(reply, work, execution, writer)
    estimated = round(estimate(execution.runtime, context))
    note = used_up(len(work.calls) + len(calls), work.usage.llm_calls + 1, execution.limits) if calls else ""
    return work.replied(reply, calls, first_token_ms=first_token_ms, estimated=estimated, note=note)


def _tell_changes(work: TurnState, execution: Execution, writer: EventWriter) -> None:
    """Readers hear of what became of the memory since the session's last turn, before this one's first reply."""
    if work.last_reply is not None:
        return
    for change in execution.recollect().state.changes:
        if change.version > work.claim.memory_seen:
            writer.emit(f"memory.{change.kind}", change.as_json())


def _request(context: Context, execution: Execution, *, may_call_tools: bool) -> Request:
    return Request(
        system=context.system,
        memory=context.memory,
        messages=context.messages,
        tools=context.tools,
        may_call_tools=may_call_tools,
        max_tokens=execution.runtime.max_tokens,
        stop_sequences=execution.runtime.agent.stop_sequences,
        may_be_sent=execution.ownership.is_confirmed,
        is_given_up=lambda: execution.ownership.is_lost() or execution.cancel_requests.must_cut(),
        watch=execution.watch,
    )


def _calls(reply: Reply, work: TurnState, execution: Execution, writer: EventWriter) -> tuple[Call, ...]:
    calls = planned(
        reply.tool_uses,
        examiner(reply.tool_uses, execution),
        execution.limits,
        position=len(work.calls),
        reply_n=work.next_n,
    )
    for call in calls:
        writer.emit("tool_call.started", {"id": call.id, "name": call.name, "arguments": call.arguments})
        if call.is_waiting:
            writer.emit("approval.required", call.as_json())
        if not call.is_open:
            writer.emit("tool_call.completed", call.as_json())
    return calls


def system_rom(work: TurnState, execution: Execution) -> str:
    """The system text of the session: as first sent, else made now."""
    return rom_of(execution.runtime, work.claim.rom, execution.standing)


def _context(work: TurnState, execution: Execution, ratio: float) -> Context:
    layers = layers_of(
        execution.runtime,
        execution.recollect(),
        rom=system_rom(work, execution),
        kernel=kernel_of(work.claim),
        recalled=work.recalled,
        current=[as_data(chat, work.turn.id) for chat in conversation(work)],
    )
    return build(execution.runtime, layers, ratio=ratio)


def _listen(
    stream: Iterator[ReplyEvent], work: TurnState, execution: Execution, writer: EventWriter, *, sent_tokens: int
) -> tuple[Reply, int | None]:
    first_token_ms: int | None = None
    said: list[str] = []
    try:
        for event in stream:
            if isinstance(event, Reply) and not execution.cancel_requests.must_cut():
                return event, first_token_ms  # whole and paid for: whether it counts is for the journal's fence to say
            _check_wanted(execution)
            match event:
                case TextDelta(text):
                    first_token_ms = _age_ms(work, execution) if first_token_ms is None else first_token_ms
                    writer.delta(text if said else after(work.replies) + text, reply_n=work.next_n)
                    said.append(text)
                    crash_points.reached("llm.streaming")
                case Restarted(why):
                    writer.drop_deltas(reply_n=work.next_n)
                    said.clear()
                    retell(work, writer, why)
    except Interrupted:
        if not execution.cancel_requests.must_cut():
            raise
        return _cut("".join(said), execution, sent_tokens=sent_tokens), first_token_ms
    raise StreamBroken("The model's stream ended without a reply.")


def _age_ms(work: TurnState, execution: Execution) -> int:
    """Milliseconds since the turn was accepted."""
    return execution.worker.clock_ms() - work.turn.created_ms


def _check_wanted(execution: Execution) -> None:
    if execution.ownership.is_lost() or execution.worker.stopping.is_due or execution.cancel_requests.must_cut():
        raise Interrupted("The reply was given up: its turn is cancelled, the lease is lost or the worker stops.")


def _cut(text: str, execution: Execution, *, sent_tokens: int) -> Reply:
    """A reply that the client did not want to its end. The provider says what it costs only there: we estimate."""
    model = execution.runtime.model.name
    usage = Usage(input_tokens=sent_tokens, output_tokens=execution.runtime.count(text) if text else 0, llm_calls=1)
    return Reply(text, "cancelled", replace(usage, cost_usd=cost_usd(model, usage)), model)


def retell(work: TurnState, writer: EventWriter, why: str) -> None:
    """Tell readers to drop what they saw since the turn started, and what of it still holds."""
    writer.emit("turn.retrying", {"reason": why, "attempt": work.turn.attempt})
    for n, step in enumerate(work.replies):
        if step.payload["text"]:
            writer.delta(after(work.replies[:n]) + step.payload["text"], reply_n=step.n)


def _close(stream: Iterator[ReplyEvent]) -> None:
    close = getattr(stream, "close", None)
    if close is not None:
        close()
