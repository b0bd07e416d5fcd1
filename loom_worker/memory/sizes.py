"""What is sent again with every call, counted once: turns that have ended, and the tools of an agent."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from loom_worker.core.values.chat import ChatMessage, ToolSpec
from loom_worker.core.values.sessions import Message
from loom_worker.memory.layers import Count, chat_tokens, tools_tokens
from loom_worker.memory.results import bounded

MOST_KEPT = 50_000
"""Sizes that are kept, some 200 bytes each; then counting begins anew."""

_Key = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class Size:
    """Of one turn as it is sent."""

    tokens: int
    added_tokens: int
    """Of them, those of texts that were added to the user's message."""
    is_whole: bool
    """False: some of its results leave a stub in their place."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one agent, by the tokens of its model. Any thread may ask."""

    count: Count
    _turns: dict[_Key, Size] = field(default_factory=dict)
    _tools: dict[tuple[str, ...], int] = field(default_factory=dict)

    def of_tools(self, tools: Sequence[ToolSpec]) -> int:
        """Tokens of the tools that are offered; the agent has one of each name."""
        names = tuple(tool.name for tool in tools)
        known = self._tools.get(names)
        if known is None:
            known = self._tools[names] = tools_tokens(tools, self.count)
        return known

    def of_turn(self, turn: Sequence[Message], *, budget_tokens: int) -> Size:
        """What a turn takes.

        Args:
            turn: all of its messages.
            budget_tokens: of its tool results alone, see results_tokens.
        """
        # Results are fenced where they are sent, and as they came where memory is looked at: their length tells which.
        results_chars = sum(len(each.content) for message in turn for each in message.chat.outcomes)
        key = (turn[-1].id, len(turn), results_chars, budget_tokens)
        known = self._turns.get(key)
        if known is None:
            if len(self._turns) >= MOST_KEPT:
                self._turns.clear()
            known = self._turns[key] = self._counted(turn, budget_tokens)
        return known

    def sent(self, turn: Sequence[Message], size: Size, *, budget_tokens: int) -> tuple[ChatMessage, ...]:
        """A turn's messages as they are sent, its results bounded.

        Args:
            size: of the turn, with the same budget.
        """
        chats = tuple(message.chat for message in turn)
        return chats if size.is_whole else bounded(chats, budget_tokens=budget_tokens, count=self.count)

    def _counted(self, turn: Sequence[Message], budget_tokens: int) -> Size:
        chats = tuple(message.chat for message in turn)
        sent = bounded(chats, budget_tokens=budget_tokens, count=self.count)
        added_tokens = sum(self.count(chat.context) for chat in sent)
        return Size(chat_tokens(sent, self.count), added_tokens, sent == chats)
