"""How many tokens a request usually is, where no reply has told yet. Pure."""

from collections.abc import Sequence

from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.tokens import Frame
from loom_worker.memory.layers import (
    CALL_OVERHEAD_TOKENS,
    MESSAGE_OVERHEAD_TOKENS,
    REQUEST_OVERHEAD_TOKENS,
    TOOLS_OVERHEAD_TOKENS,
)


def usual_tokens(
    bound_tokens: int, messages: Sequence[ChatMessage], tools: int, *, text_share: float, frame: Frame
) -> float:
    """Estimate a request's tokens from the most that they can be.

    The bound's texts are scaled, but what stands around them is counted anew: the highest of each kind, as the bound
    has them, are twice what is usual, and of a short request they are nearly all.

    Args:
        bound_tokens: of the whole request, as ``fit`` counts it.
        tools: how many are offered.
        text_share: the usual tokens of a text over those that were counted.
    """
    calls = sum(len(message.tool_uses) for message in messages)
    highest = REQUEST_OVERHEAD_TOKENS + MESSAGE_OVERHEAD_TOKENS * len(messages) + CALL_OVERHEAD_TOKENS * calls
    usual = frame.request + frame.message * len(messages) + frame.call * calls
    if tools:
        highest += TOOLS_OVERHEAD_TOKENS + MESSAGE_OVERHEAD_TOKENS * tools
        usual += frame.tools + frame.tool * tools
    return max(0, bound_tokens - highest) * text_share + usual
