"""The messages of a turn: as the model is sent them, and as they are kept. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from loom_worker.core.values.chat import ChatMessage, ToolOutcome, Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.turns import BETWEEN_REPLIES, CANCELLED, Call, Step
from loom_worker.turn.state import TurnState, tool_uses


def conversation(work: TurnState) -> tuple[ChatMessage, ...]:
    """The running turn: the user's message, then each reply with the results of its calls.

    A call without a result gets a synthetic one: without it the provider would refuse the conversation for ever.
    """
    return tuple(chat for chat, _ in said(work))


def said(work: TurnState) -> Iterator[tuple[ChatMessage, Json | None]]:
    """Each message of the turn with the usage of the reply it came from."""
    yield ChatMessage("user", text=work.turn.input, context=work.context), None
    for step in work.replies:
        yield from _reply(step, [call for call in work.calls if call.reply_n == step.n])


def after(replies: Sequence[Step]) -> str:
    """What stands between these replies and the next one's text, in the stream as in the turn's text."""
    return BETWEEN_REPLIES if any(step.payload["text"] for step in replies) else ""


def usage_of(data: Json | None) -> Usage | None:
    """The usage of a reply step."""
    return None if data is None else Usage.from_json(data)


def _reply(step: Step, calls: Sequence[Call]) -> Iterator[tuple[ChatMessage, Json | None]]:
    uses = tool_uses(step)
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
    )
