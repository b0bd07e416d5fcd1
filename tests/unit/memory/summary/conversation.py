"""A conversation to be summarized, and models that summarize it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from loom_worker.agents.memory import MARKS
from loom_worker.core.values.budgets import usd
from loom_worker.core.values.chat import ChatMessage, Reply, ReplyEvent, Request, StopReason, TextDelta, Usage
from loom_worker.core.values.memory import MemoryPolicy
from loom_worker.core.values.sessions import Message
from loom_worker.llm.model import Model
from loom_worker.memory.pressure import l1_room
from loom_worker.memory.summarize import CompressionRules

DAY_MS = 1_750_000_000_000
BY_NUMBER = MemoryPolicy(max_l1_messages=10, batches=(4, 6, 8), **MARKS)
"""Ten messages are enough, however short they are."""


def count(text: str) -> int:
    """Four characters are a token."""
    return len(text) // 4 + 1


def message(n: int, chat: ChatMessage) -> Message:
    """The n-th message, two to a turn."""
    return Message(f"msg_{n}", "s1", f"turn_{n // 2}", chat, count(chat.text), DAY_MS, n=n)


def talk(turns: int, *, words: int = 30) -> tuple[Message, ...]:
    """Questions and answers, each with a number of its own."""
    said: list[Message] = []
    for turn in range(turns):
        question = f"Question {turn}: how did order {1000 + turn} go? " + "please " * words
        answer = f"Order {1000 + turn} was sent by Ada on 2025-03-{turn % 28 + 1:02d}. " + "indeed " * words
        said += [
            message(2 * turn, ChatMessage("user", question)),
            message(2 * turn + 1, ChatMessage("assistant", answer)),
        ]
    return tuple(said)


@dataclass
class Says:
    """A model that says what it is told to, or raises."""

    answer: Callable[[Request], str | Exception] = lambda _: "Ada sends the orders."
    stop_reason: StopReason = "end_turn"
    name: str = "claude-compressor"
    asked: list[Request] = field(default_factory=list)

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """See Model.reply."""
        self.asked.append(request)
        text = self.answer(request)
        if isinstance(text, Exception):
            raise text
        yield TextDelta(text)
        yield Reply(
            text, self.stop_reason, Usage(input_tokens=100, output_tokens=10, cost_usd=usd(0.5), llm_calls=1), self.name
        )


def means(
    model: Model | None = None, policy: MemoryPolicy | None = None, *, l2_tokens: int = 2_000
) -> CompressionRules:
    """What sessions are compressed by: a window of 20,000 tokens, of which L1 may have half."""
    rules = policy or BY_NUMBER
    room = l1_room(20_000, policy=rules, most_tokens=48_000).beside(10_000)
    return CompressionRules(rules, model, count, l1=room, l2_tokens=l2_tokens, budget_tokens=20_000)
