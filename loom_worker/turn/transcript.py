"""The messages of a turn: as its model reads them while it runs, and as the conversation keeps them. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from loom_worker.core.values.calls import CANCELLED, Call
from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolUse, Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.media import media_of
from loom_worker.core.values.turns import Step
from loom_worker.store.rows import media
from loom_worker.turn.state import TurnState


def tool_uses(step: Step) -> tuple[ToolUse, ...]:
    """The tool uses of a reply step."""
    return tuple(ToolUse(**use) for use in step.payload["tool_uses"])


def conversation(state: TurnState) -> tuple[ChatMessage, ...]:
    """The running turn: the user's message, then each reply with the results of its calls.

    A call without a result gets a synthetic one: without it the provider would refuse the conversation for ever.
    """
    return tuple(_exchanged(state))


def _exchanged(state: TurnState) -> Iterator[ChatMessage]:
    corrections = {step.payload["reply_n"]: step.payload["correction"] for step in state.steps if step.takes_back}
    yield _question(state)
    for step in state.replies:
        if step.payload["stop_reason"] != "unasked_calls":  # the model would go on with its text
            yield from (chat for chat, _ in _reply(step, state))
        if correction := corrections.get(step.n):
            yield ChatMessage("user", text=correction)


def said(state: TurnState) -> Iterator[tuple[ChatMessage, Json | None]]:
    """Each message that the conversation keeps of the turn, with the usage of the reply it came from.

    Of answers that were given anew it keeps the calls of tools alone.
    """
    spoken = state.spoken
    yield _question(state), None
    for step in state.replies:
        if step in spoken:
            yield from _reply(step, state)
        elif step.payload["tool_uses"]:
            yield from _reply(replace(step, payload={**step.payload, "text": "", "opaque": []}), state)


def _question(state: TurnState) -> ChatMessage:
    turn = state.turn
    return ChatMessage("user", text=turn.input, context=state.context, media=media_of(turn.parts))


def usage_of(data: Json | None) -> Usage | None:
    """The usage of a reply step."""
    return None if data is None else Usage.from_json(data)


def _reply(step: Step, state: TurnState) -> Iterator[tuple[ChatMessage, Json | None]]:
    uses = tool_uses(step)
    calls = [call for call in state.calls if call.reply_n == step.n]
    if step.payload["text"].strip() or uses or step.payload["opaque"]:
        chat = ChatMessage("assistant", text=step.payload["text"], tool_uses=uses, opaque=tuple(step.payload["opaque"]))
        yield chat, step.payload["usage"]
    if uses:
        *earlier, last = (_outcome(call) for call in calls)
        yield ChatMessage("tool", outcomes=(*earlier, replace(last, note=step.payload.get("note", "")))), None


def _outcome(call: Call) -> ToolOutcome:
    return ToolOutcome(
        tool_use_id=call.id,
        name=call.name,
        content=CANCELLED if call.content is None else call.content,
        is_error=call.status != "completed",
        duration_ms=call.duration_ms or 0,
        ref=call.ref,
        error_id=call.error_id,
        media=media(call.media),
    )
