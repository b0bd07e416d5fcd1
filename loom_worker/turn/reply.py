"""One call of the model: pack the context, stream the answer to the readers, plan its tool calls."""

import logging
from collections.abc import Iterator
from dataclasses import replace

from loom_worker.core import crash_points
from loom_worker.core.errors import BudgetExceeded, Interrupted, PromptTooLong, ProviderFailed, StreamBroken, Transient
from loom_worker.core.values.chat import Reply, ReplyEvent, Request, Restarted, TextDelta, Usage
from loom_worker.core.values.turns import Call
from loom_worker.events.writer import Writer
from loom_worker.llm.prices import cost_usd
from loom_worker.memory.fit import Context
from loom_worker.turn.authorization import examiner
from loom_worker.turn.context import build, estimate, kernel_of, layers_of, over_bound, rom_of, shown_tokens
from loom_worker.turn.fencing import as_data
from loom_worker.turn.runtime import Shift
from loom_worker.turn.state import Work
from loom_worker.turn.tool_plan import named, planned, used_up
from loom_worker.turn.transcript import after, conversation

log = logging.getLogger(__name__)

REFITS = 5
"""Requests that are tried before a turn is given up as too long."""
TOO_LONG = 1.2
"""By how much more a provider's tokens are taken for, each time it refuses a request as too long."""


def ask(work: Work, shift: Shift, pen: Writer, *, may_call_tools: bool) -> Work:
    """Call the model once and take up its answer; where the client wishes it cut, what it said until then.

    Raises:
        BudgetExceeded: the turn does not fit the model's window.
        Transient: the provider is too busy, or its stream broke, also after retries.
        ProviderFailed: the provider refuses.
        Interrupted: this worker must stop, or lost the turn.
    """
    _tell_changes(work, shift, pen)
    ratio = over_bound(shift.kit, work.correction)
    for _ in range(REFITS):
        context = _context(work, shift, ratio)
        try:
            return _ask(work, shift, pen, context, may_call_tools=may_call_tools)
        except PromptTooLong as error:
            # What is dropped may be what needs fewest tokens: each time it is taken for more than it seems to be.
            learned = _learned(error, context, shift.kit.input_budget_tokens)
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


def _ask(work: Work, shift: Shift, pen: Writer, context: Context, *, may_call_tools: bool) -> Work:
    shown = shown_tokens(shift.kit, context, work.correction)
    pen.emit("context.built", {"tokens": shown, "budget_tokens": shift.kit.input_budget_tokens})
    crash_points.reached("turn.built")
    stream = shift.kit.model.reply(_request(context, shift, may_call_tools=may_call_tools))
    try:
        reply, first_token_ms = _listen(stream, work, shift, pen, sent_tokens=sum(shown.values()))
    except (Transient, ProviderFailed) as error:
        if pen.drop_deltas(reply_n=work.next_n):
            retell(work, pen, str(error))
        raise
    except BaseException:
        pen.drop_deltas(reply_n=work.next_n)
        raise
    finally:
        _close(stream)
    ids = frozenset(call.id for call in work.calls)
    reply = replace(reply, tool_uses=named(reply.tool_uses, ids, position=len(work.calls)))
    calls = _calls(reply, work, shift, pen)
    estimated = round(estimate(shift.kit, context))
    note = used_up(len(work.calls) + len(calls), work.usage.llm_calls + 1, shift.limits) if calls else ""
    return work.replied(reply, calls, first_token_ms=first_token_ms, estimated=estimated, note=note)


def _tell_changes(work: Work, shift: Shift, pen: Writer) -> None:
    """Readers hear of what became of the memory since the session's last turn, before this one's first reply."""
    if work.last_reply is not None:
        return
    for change in shift.recollect().state.changes:
        if change.version > work.claim.memory_seen:
            pen.emit(f"memory.{change.kind}", change.as_json())


def _request(context: Context, shift: Shift, *, may_call_tools: bool) -> Request:
    return Request(
        system=context.system,
        memory=context.memory,
        messages=context.messages,
        tools=context.tools,
        may_call_tools=may_call_tools,
        max_tokens=shift.kit.max_tokens,
        stop_sequences=shift.kit.agent.stop_sequences,
        may_be_sent=shift.ownership.is_confirmed,
        is_given_up=lambda: shift.ownership.is_lost() or shift.wishes.must_cut(),
        watch=shift.watch,
    )


def _calls(reply: Reply, work: Work, shift: Shift, pen: Writer) -> tuple[Call, ...]:
    calls = planned(
        reply.tool_uses,
        examiner(reply.tool_uses, shift),
        shift.limits,
        position=len(work.calls),
        reply_n=work.next_n,
    )
    for call in calls:
        pen.emit("tool_call.started", {"id": call.id, "name": call.name, "arguments": call.arguments})
        if call.is_waiting:
            pen.emit("approval.required", call.as_json())
        if not call.is_open:
            pen.emit("tool_call.completed", call.as_json())
    return calls


def system_rom(work: Work, shift: Shift) -> str:
    """The system text of the session: as first sent, else made now."""
    return rom_of(shift.kit, work.claim.rom, shift.standing)


def _context(work: Work, shift: Shift, ratio: float) -> Context:
    layers = layers_of(
        shift.kit,
        shift.recollect(),
        rom=system_rom(work, shift),
        kernel=kernel_of(work.claim),
        recalled=work.recalled,
        current=[as_data(chat, work.turn.id) for chat in conversation(work)],
    )
    return build(shift.kit, layers, ratio=ratio)


def _listen(
    stream: Iterator[ReplyEvent], work: Work, shift: Shift, pen: Writer, *, sent_tokens: int
) -> tuple[Reply, int | None]:
    first_token_ms: int | None = None
    said: list[str] = []
    try:
        for event in stream:
            if isinstance(event, Reply) and not shift.wishes.must_cut():
                return event, first_token_ms  # whole and paid for: whether it counts is for the journal's fence to say
            _check_wanted(shift)
            match event:
                case TextDelta(text):
                    first_token_ms = _age_ms(work, shift) if first_token_ms is None else first_token_ms
                    pen.delta(text if said else after(work.replies) + text, reply_n=work.next_n)
                    said.append(text)
                    crash_points.reached("llm.streaming")
                case Restarted(why):
                    pen.drop_deltas(reply_n=work.next_n)
                    said.clear()
                    retell(work, pen, why)
    except Interrupted:
        if not shift.wishes.must_cut():
            raise
        return _cut("".join(said), shift, sent_tokens=sent_tokens), first_token_ms
    raise StreamBroken("The model's stream ended without a reply.")


def _age_ms(work: Work, shift: Shift) -> int:
    """Milliseconds since the turn was accepted."""
    return shift.loom.clock_ms() - work.turn.created_ms


def _check_wanted(shift: Shift) -> None:
    if shift.ownership.is_lost() or shift.loom.stopping.is_due or shift.wishes.must_cut():
        raise Interrupted("The reply was given up: its turn is cancelled, the lease is lost or the worker stops.")


def _cut(text: str, shift: Shift, *, sent_tokens: int) -> Reply:
    """A reply that the client did not want to its end. The provider says what it costs only there: we estimate."""
    model = shift.kit.model.name
    usage = Usage(input_tokens=sent_tokens, output_tokens=shift.kit.count(text) if text else 0, llm_calls=1)
    return Reply(text, "cancelled", replace(usage, cost_usd=cost_usd(model, usage)), model)


def retell(work: Work, pen: Writer, why: str) -> None:
    """Tell readers to drop what they saw since the turn started, and what of it still holds."""
    pen.emit("turn.retrying", {"reason": why, "attempt": work.turn.attempt})
    for n, step in enumerate(work.replies):
        if step.payload["text"]:
            pen.delta(after(work.replies[:n]) + step.payload["text"], reply_n=step.n)


def _close(stream: Iterator[ReplyEvent]) -> None:
    close = getattr(stream, "close", None)
    if close is not None:
        close()
