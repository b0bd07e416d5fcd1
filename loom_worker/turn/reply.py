"""Asks the model, streams its answer into the event log, and plans the tool calls it asks for."""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil

from loom_worker.core import crash_points
from loom_worker.core.errors import (
    BudgetExceeded,
    BudgetSpent,
    Interrupted,
    PromptTooLong,
    ProviderFailed,
    StreamBroken,
    Transient,
)
from loom_worker.core.text import fence_key
from loom_worker.core.values.budgets import Reservation, ToolCallCount
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import (
    UNMETERED,
    FellBack,
    Reply,
    ReplyEvent,
    Request,
    Restarted,
    TextDelta,
    ThinkingDelta,
    ToolUse,
    Usage,
)
from loom_worker.core.values.children import why_not
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.turns import BETWEEN_REPLIES, Step, answer, continued
from loom_worker.events.rebuild import COMMENTARY
from loom_worker.events.writer import DELTA, EventWriter
from loom_worker.judge.checks import unfenced
from loom_worker.llm.media import within
from loom_worker.llm.model import BudgetMeter, PaidTry
from loom_worker.memory.fit import Context
from loom_worker.turn.context import as_data, build, estimate, kernel_of, layers_of, over_bound, scale, shown_tokens
from loom_worker.turn.filtering import filtered, with_checked_calls
from loom_worker.turn.reporting import tell_closed
from loom_worker.turn.state import Bill, TurnState
from loom_worker.turn.text_calls import settled
from loom_worker.turn.tool_plan import Checked, named, planned, used_up
from loom_worker.turn.transcript import conversation
from loom_worker.turn.waits import ModelWatch
from loom_worker.turn.worker import Execution

log = logging.getLogger(__name__)

THOUGHT = "reasoning.delta"
THOUGHT_CHARS = 200
"""Characters of thinking in one event: models write some thousand words of it, which few people read as they come."""
REFITS = 5
"""Requests that are tried before a turn is given up as too long."""
TOO_LONG = 1.2
"""By how much more a provider's tokens are taken for, each time it refuses a request as too long."""


def ask(state: TurnState, execution: Execution, writer: EventWriter, *, may_call_tools: bool) -> TurnState:
    """Call the model once and take up its answer; where the client asks it cut, what it said until then.

    Raises:
        BudgetExceeded: the turn does not fit the model's window.
        Transient: the provider is too busy, or its stream broke, also after retries.
        ProviderFailed: the provider refuses.
        Interrupted: this worker must stop, or lost the turn.
    """
    _tell_changes(state, execution, writer)
    ratio = over_bound(execution.runtime, state.correction)
    refusal: PromptTooLong | None = None
    for _ in range(REFITS):
        began_us = now_us()
        try:
            context = _context(state, execution, ratio)
            execution.watch.calls.built(began_us, sum(context.tokens.values()))
            execution.watch.meter = _meter(execution, context, ratio)
            return _ask(state, execution, writer, context, may_call_tools=may_call_tools)
        except PromptTooLong as error:
            # What is dropped may be what needs fewest tokens: each time it is taken for more than it seems to be.
            learned = _learned(error, context, execution.runtime.input_budget_tokens)
            ratio, refusal = max(learned, TOO_LONG * max(ratio, 1.0)), error
            log.warning("the window is fuller than counted", extra={"turn": state.turn.id, "by": ratio})
        except BudgetExceeded:
            if refusal is None:
                raise
            break
    raise BudgetExceeded(
        f"{refusal} It is so even after the turn was shortened: the server's window is smaller than Loom takes it for. "
        "Lower LOOM_MAX_CONTEXT_TOKENS, or max_context_tokens of the agent, to what the server has, or give the server "
        "a larger window (llama.cpp: -c)."
    )


def _learned(error: PromptTooLong, context: Context, budget_tokens: int) -> float:
    """The provider's tokens over our bound, by what it refused, more if its window is smaller than configured."""
    ratio = error.tokens / sum(context.tokens.values()) if error.tokens else TOO_LONG
    return ratio * max(1.0, budget_tokens / error.limit) if error.limit else ratio


def _meter(execution: Execution, context: Context, ratio: float) -> BudgetMeter | None:
    if not execution.is_limited:
        return None
    most_tokens = ceil(sum(context.tokens.values()) * scale(ratio))
    worker = execution.worker
    return BudgetMeter(worker.budgets, execution.payer, input_tokens=most_tokens, clock_ms=worker.clock_ms)


def _ask(
    state: TurnState, execution: Execution, writer: EventWriter, context: Context, *, may_call_tools: bool
) -> TurnState:
    shown = shown_tokens(execution.runtime, context, state.correction)
    writer.emit("context.built", {"tokens": shown, "budget_tokens": execution.runtime.input_budget_tokens})
    crash_points.reached("turn.built")
    request = _request(state, execution, context, may_call_tools=may_call_tools)
    asked = execution.runtime.model.reply(request)
    stream = filtered(asked, execution.guardrails.output, fence_key(state.turn.id))
    try:
        reply, first_token_ms = _listen(stream, state, execution, writer, sent_tokens=sum(shown.values()))
    except (Transient, ProviderFailed) as error:
        execution.watch.calls.failed(error)
        if writer.drop_deltas(reply_n=state.next_n):
            retell(state, writer, str(error))
        raise
    except BaseException:
        writer.drop_deltas(reply_n=state.next_n)
        raise
    finally:
        stream.close()
    reply = _settled(reply, request, state, execution, writer)
    if state.is_correcting and not reply.text.strip() and reply.tool_uses:
        withdraw(state, writer)
    ids = frozenset(call.id for call in state.calls)
    reply = replace(reply, tool_uses=named(reply.tool_uses, ids, position=len(state.calls)))
    reply, refused = with_checked_calls(reply, execution.guardrails.arguments)
    calls, bill = _calls(reply, refused, state, execution, execution.watch.answered())
    _tell_calls(calls, writer)
    tell_closed([call for call in calls if not call.is_open], state.turn, execution.runtime, execution.worker.monitor)
    estimated = round(estimate(execution.runtime, context))
    note = used_up(len(state.calls) + len(calls), len(state.replies) + 1, execution.limits) if calls else ""
    notes = {"note": note, "times": execution.watch.calls.take()}
    state = state.replied(reply, calls, first_token_ms=first_token_ms, estimated=estimated, bill=bill, notes=notes)
    return execution.with_tries(state)


def _settled(reply: Reply, request: Request, state: TurnState, execution: Execution, writer: EventWriter) -> Reply:
    """The reply with the calls that are to be run; readers see its text without those that were written as text."""
    found, shown = settled(reply, request, execution.runtime), _shown(reply.text, execution.holds_calls)
    found = replace(found, text=unfenced(found.text)) if request.shape else found
    if found.text != reply.text and writer.drop_deltas(reply_n=state.next_n):
        retell(state, writer, "the model wrote calls of tools, or JSON in a block of code, as text")
        shown = ""
    if found.text.strip() and (rest := found.text[len(shown) :]):
        _tell(rest, [shown] if shown else [], state, writer, None)
    return found


def _shown(text: str, holds_calls: bool) -> str:
    """What readers see of a text while it comes: any call that is written as text begins with one of these."""
    return re.split(r"[<\[{`]", text, maxsplit=1)[0] if holds_calls else text


def _tell_changes(state: TurnState, execution: Execution, writer: EventWriter) -> None:
    """Emit what happened to the memory since the session's last turn, before this one's first reply."""
    if state.last_reply is not None:
        return
    for change in execution.session.memory.state.changes:
        if change.version > state.claim.memory_seen:
            writer.emit(f"memory.{change.kind}", change.as_json())


def _request(state: TurnState, execution: Execution, context: Context, *, may_call_tools: bool) -> Request:
    last = state.last_reply
    return Request(
        system=context.system,
        memory=context.memory,
        messages=within(context.messages),
        tools=() if last and last.payload["stop_reason"] == "unasked_calls" else context.tools,
        may_call_tools=may_call_tools,
        shape=execution.shape,
        max_tokens=execution.runtime.max_tokens,
        stop_sequences=execution.runtime.agent.stop_sequences,
        may_be_sent=execution.ownership.is_confirmed,
        is_given_up=lambda: execution.ownership.is_lost() or execution.cancel_requests.must_cut(),
        watch=execution.watch,
        meter=execution.watch.meter or UNMETERED,
        key=f"{state.turn.id}.{len(state.replies)}",
        source=execution.payer.source,
        read_file=execution.worker.tools.files.read,
    )


def _calls(
    reply: Reply, refused: Mapping[str, str], state: TurnState, execution: Execution, held: Reservation | None
) -> tuple[tuple[Call, ...], Bill]:
    """A reply's calls as they may run, and what budgets say to them and to the reply."""
    calls = planned(
        reply.tool_uses,
        examiner(reply.tool_uses, execution),
        execution.limits,
        position=len(state.calls),
        reply_n=state.next_n,
        children=sum(call.child_turn_id is not None for call in state.calls),
    )
    calls = _denied(calls, refused)
    meter = execution.watch.meter
    paid = Bill(() if held is None else (held,), meter.narrowed if meter else "")
    open_calls = sum(call.is_open for call in calls)
    if not open_calls or not execution.is_limited:
        return calls, paid
    worker, now_ms = execution.worker, execution.worker.clock_ms()
    need = ToolCallCount(open_calls)
    try:
        held = execution.write(partial(worker.budgets.reserve, execution.payer, need, now_ms=now_ms))
    except BudgetSpent as error:
        why = {call.id: f"Not run: {error}" for call in calls if call.is_open}
        return _denied(calls, why), replace(paid, refused=str(error))
    return calls, replace(paid, held=(*paid.held, *(() if held is None else (held,))))


def _denied(calls: Sequence[Call], why: Mapping[str, str]) -> tuple[Call, ...]:
    return tuple(replace(call, status="denied", content=why[call.id]) if call.id in why else call for call in calls)


def _tell_calls(calls: Sequence[Call], writer: EventWriter) -> None:
    for call in calls:
        writer.emit("tool_call.started", {"id": call.id, "name": call.name, "arguments": call.arguments})
        if call.is_waiting:
            writer.emit_once_saved("approval.required", call.as_json())  # who decides at once must find the call
        if not call.is_open:
            writer.emit("tool_call.completed", call.as_json())


def _context(state: TurnState, execution: Execution, ratio: float) -> Context:
    layers = layers_of(
        execution.runtime,
        execution.session.memory,
        rom=execution.session.rom,
        kernel=kernel_of(state.claim),
        recalled=state.recalled,
        current=[as_data(chat, state.turn.id) for chat in conversation(state)],
    )
    if (shape := execution.shape) is None:
        return build(execution.runtime, layers, ratio=ratio)
    size = execution.runtime.count(json.dumps(shape.schema, ensure_ascii=False))
    smaller = replace(execution.runtime, input_budget_tokens=execution.runtime.input_budget_tokens - size)
    context = build(smaller, layers, ratio=ratio)
    return replace(context, tokens={**context.tokens, "tools": context.tokens["tools"] + size})


def _listen(
    stream: Iterator[ReplyEvent], state: TurnState, execution: Execution, writer: EventWriter, *, sent_tokens: int
) -> tuple[Reply, int | None]:
    first_token_ms: int | None = None
    said, is_held, holds_calls = list[str](), False, execution.holds_calls
    thought = _Thought(writer)
    try:
        for event in stream:
            if not isinstance(event, ThinkingDelta):
                thought.tell()
            if isinstance(event, Reply) and not execution.cancel_requests.must_cut():
                return event, first_token_ms  # whole and paid for: whether it counts is for the journal's fence to say
            _check_wanted(execution)
            match event:
                case ThinkingDelta(text):
                    thought.add(text)
                case FellBack(model, instead_of, why):
                    writer.emit("model.fallback", {"model": model, "instead_of": instead_of, "reason": why})
                case TextDelta(text) if not is_held:
                    first_token_ms = _age_ms(state, execution) if first_token_ms is None else first_token_ms
                    shown = _shown(text, holds_calls)
                    _tell(shown, said, state, writer, execution.watch)
                    is_held = shown != text
                    crash_points.reached("llm.streaming")
                case Restarted(why):
                    writer.drop_deltas(reply_n=state.next_n)
                    said, is_held = [], False
                    retell(state, writer, why)
    except (BudgetSpent, Interrupted) as error:
        is_over = isinstance(error, BudgetSpent) and bool(said)
        if not is_over and not execution.cancel_requests.must_cut():
            raise
        cut = _cut("".join(said), execution, sent_tokens=sent_tokens)
        return replace(cut, stop_reason="max_tokens") if is_over else cut, first_token_ms
    raise StreamBroken("The model's stream ended without a reply.")


class _Thought:
    """Thinking on its way to readers, in pieces that are worth an event each."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._held = ""

    def add(self, text: str) -> None:
        self._held += text
        if len(self._held) >= THOUGHT_CHARS:
            self.tell()

    def tell(self) -> None:
        if self._held:
            self._writer.emit(THOUGHT, {"text": self._held})
            self._held = ""


def _age_ms(state: TurnState, execution: Execution) -> int:
    return execution.worker.clock_ms() - state.turn.created_ms


def _tell(text: str, said: list[str], state: TurnState, writer: EventWriter, watch: ModelWatch | None) -> None:
    """Pass on a piece of a reply, if there is any; what it takes the place of is taken back with the first one."""
    if not text:
        return
    tries = watch.said(text) if watch else ()
    if state.is_correcting and not said:
        withdraw(state, writer)
    writer.delta(text if said else _before(state.standing, writer) + text, reply_n=state.next_n, tries=tries)
    said.append(text)


def _before(former: Sequence[Step], writer: EventWriter) -> str:
    """What parts a reply's text from these replies; unless it goes on with them, they are told to be commentary."""
    if continued(former):
        return BETWEEN_REPLIES
    if answer(former):
        writer.emit(DELTA, {"text": BETWEEN_REPLIES})  # for readers who know nothing of commentary
        writer.emit(COMMENTARY, {})
    return ""


def _check_wanted(execution: Execution) -> None:
    if execution.ownership.is_lost() or execution.worker.stopping.is_due or execution.cancel_requests.must_cut():
        raise Interrupted("The reply was given up: its turn is cancelled, the lease is lost or the worker stops.")


def _cut(text: str, execution: Execution, *, sent_tokens: int) -> Reply:
    """A reply that was not wanted to its end: it costs what the provider told, else an estimate if a request is out."""
    is_sent = execution.watch.is_under_way or text
    sent = Usage(input_tokens=sent_tokens, llm_calls=1) if is_sent else Usage()
    paid = execution.watch.under_way or PaidTry(sent, said=[text])
    model = execution.runtime.model.name
    return Reply(text, "cancelled", paid.usage(model, execution.runtime.count), model)


def retell(state: TurnState, writer: EventWriter, why: str) -> None:
    """Tell readers to drop what they saw since the turn started, and what of it still holds."""
    writer.emit("turn.retrying", {"reason": why, "attempt": state.turn.attempt})
    for n, step in enumerate(state.spoken):
        if step.payload["text"].strip():
            writer.delta(_before(state.spoken[:n], writer) + step.payload["text"], reply_n=step.n)


def withdraw(state: TurnState, writer: EventWriter) -> None:
    """Take back an answer in whose place another one comes."""
    why = "the answer did not have its form" if state.is_reshaping else "judges had the answer given anew"
    writer.emit("turn.retrying", {"reason": why, "attempt": state.turn.attempt})


def examiner(uses: Sequence[ToolUse], execution: Execution) -> Callable[[ToolUse], Checked]:
    """Look at each of a reply's calls: tool, arguments, rights, circuit breaker, approval."""
    registry = execution.runtime.registry
    tools = {use.name: tool for use in uses if (tool := registry.get(use.name)) is not None}
    groups = sorted({tool.group for tool in tools.values() if tool.group})
    open_for_s = execution.worker.tools.open_breakers(groups) if groups else {}
    return lambda use: _checked(use, execution, open_for_s)


def _checked(use: ToolUse, execution: Execution, open_for_s: Mapping[str, float]) -> Checked:
    runtime = execution.runtime
    prepared = runtime.prepared(use)
    tool = runtime.registry.get(use.name)
    if prepared.error is not None or tool is None:
        return Checked(prepared.arguments, prepared.error)
    wait_s = open_for_s.get(tool.group)
    if wait_s is not None:
        text = f"UNAVAILABLE: {use.name} has failed several times in a row and is not tried for {wait_s:.0f} s."
        return Checked(prepared.arguments, f"{text} Go on without it.")
    if tool.awaits == "turn":
        turn = execution.claim.turn
        refusal = why_not(str(prepared.arguments["agent"]), turn.agent, turn.ancestors)
        if refusal is not None:
            return Checked(prepared.arguments, refusal)
    if not runtime.agent.approval.holds(tool):
        return Checked(prepared.arguments, awaits=tool.awaits)
    approve_by_ms = execution.worker.clock_ms() + int(runtime.agent.approval.timeout_s * 1000)
    return Checked(prepared.arguments, approve_by_ms=approve_by_ms, awaits=tool.awaits)
