"""The last means to fit a running turn: its oldest calls and their results become a line beside the question. Pure."""

from collections.abc import Sequence

from loom_worker.core.values.chat import ChatMessage
from loom_worker.memory.layers import with_beside

MOST_NAMES = 10
"""Calls that the line names."""


def rounds(turn: Sequence[ChatMessage]) -> int:
    """How many times the turn got results of calls."""
    return sum(bool(message.outcomes) for message in turn)


def folded(turn: Sequence[ChatMessage], number: int) -> tuple[ChatMessage, ...]:
    """Leave out the first rounds of a turn: the replies that asked for calls, and the results.

    Args:
        turn: begins with the user's message.
        number: of rounds, 0 to rounds(turn).
    """
    ends = [place + 1 for place, message in enumerate(turn) if message.outcomes]
    end = ends[number - 1] if number else 1
    names = [use.name for message in turn[1:end] for use in message.tool_uses]
    if not names:
        return tuple(turn)
    listed = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
    line = f"[{len(names)} earlier tool calls of this turn ({listed}) and their results are left out for want of room.]"
    return (with_beside(turn[0], line), *turn[end:])
