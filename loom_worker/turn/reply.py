"""One call of the model: pack the context, stream the answer to the readers, plan its tool calls."""

from collections.abc import Iterator

from loom_worker.errors import Interrupted, StreamBroken, Transient
from loom_worker.events.writer import Writer
from loom_worker.memory import layers
from loom_worker.memory.fit import Context, fit
from loom_worker.turn.loom import Shift
from loom_worker.turn.plan import planned
from loom_worker.turn.saying import conversation
from loom_worker.turn.work import Work
from loom_worker.values.chat import Reply, ReplyEvent, Request, Restarted, TextDelta

HISTORY_MESSAGES = 200
"""Messages read from the store; more than fit any window beside tool results, and the same at any session length."""


def ask(work: Work, shift: Shift, pen: Writer, *, may_call_tools: bool) -> Work:
    """Call the model once and take up its answer.

    Raises:
        BudgetExceeded: the turn does not fit the model's window.
        Transient: the provider is too busy, or its stream broke, also after retries.
        ProviderFailed: the provider refuses.
        Interrupted: this worker must stop, or lost the turn.
    """
    context = _context(work, shift)
    pen.emit("context.built", {"tokens": context.tokens, "budget_tokens": shift.kit.input_budget_tokens})
    request = Request(
        system=context.system,
        messages=context.messages,
        tools=shift.kit.specs,
        may_call_tools=may_call_tools,
        max_tokens=shift.kit.max_tokens,
        stop_sequences=shift.kit.agent.stop_sequences,
    )
    stream = shift.kit.model.reply(request)
    try:
        reply, first_token_ms = _listen(stream, work, shift, pen)
    except Transient as error:
        if pen.drop_deltas(reply_n=work.next_n):
            retell(work, pen, str(error))
        raise
    except BaseException:
        pen.drop_deltas(reply_n=work.next_n)
        raise
    finally:
        _close(stream)
    flaw = shift.kit.registry.flaw
    allowed = shift.kit.agent.tools
    calls = planned(
        reply.tool_uses,
        lambda use: flaw(use, allowed),
        shift.limits,
        position=len(work.calls),
        reply_n=work.next_n,
    )
    for call in calls:
        pen.emit("tool_call.started", {"id": call.id, "name": call.name, "arguments": call.arguments})
        if not call.is_open:
            pen.emit("tool_call.completed", call.as_json())
    return work.replied(reply, calls, first_token_ms=first_token_ms)


def system_rom(work: Work, shift: Shift) -> str:
    """The system text of the session: as first sent, else made now."""
    if work.claim.rom is not None:
        return work.claim.rom
    return layers.rom(shift.kit.agent.system_prompt, shift.kit.schema)


def _context(work: Work, shift: Shift) -> Context:
    return fit(
        layers.Layers(
            rom=system_rom(work, shift),
            kernel={**({"user": work.claim.user} if work.claim.user else {}), **work.claim.kernel},
            history=shift.loom.messages.latest(work.turn.lane, limit=HISTORY_MESSAGES),
            current=conversation(work),
            tools=shift.kit.specs,
        ),
        budget_tokens=shift.kit.input_budget_tokens,
        count=shift.kit.count,
    )


def _listen(stream: Iterator[ReplyEvent], work: Work, shift: Shift, pen: Writer) -> tuple[Reply, int | None]:
    first_token_ms = None
    for event in stream:
        if shift.hold.lost.is_set() or shift.loom.stopping.is_due:
            raise Interrupted("The reply was given up: the lease is lost or the worker stops.")
        match event:
            case TextDelta(text):
                if first_token_ms is None:
                    first_token_ms = shift.loom.clock_ms() - work.turn.created_ms
                pen.delta(text, reply_n=work.next_n)
            case Restarted(why):
                pen.drop_deltas(reply_n=work.next_n)
                retell(work, pen, why)
            case Reply() as reply:
                return reply, first_token_ms
    raise StreamBroken("The model's stream ended without a reply.")


def retell(work: Work, pen: Writer, why: str) -> None:
    """Tell readers to drop what they saw since the turn started, and what of it still holds."""
    pen.emit("turn.retrying", {"reason": why, "attempt": work.turn.attempt})
    for step in work.replies:
        if step.payload["text"]:
            pen.delta(step.payload["text"], reply_n=step.n)


def _close(stream: Iterator[ReplyEvent]) -> None:
    close = getattr(stream, "close", None)
    if close is not None:
        close()
