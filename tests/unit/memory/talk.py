"""Conversations for the tests of memory: a few written out, and any that hypothesis thinks of."""

from collections.abc import Sequence
from functools import partial

from hypothesis import strategies as st

from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolUse
from loom_worker.core.values.sessions import Message
from loom_worker.llm import tokens
from loom_worker.memory.layers import Count

SONNET: Count = partial(tokens.count, model="claude-sonnet-4-5")
"""Real tokens: a text may be more or fewer than its parts."""


def count(text: str) -> int:
    """As many tokens as characters, so that cases can be reckoned by hand."""
    return len(text)


def user(text: str, context: str = "") -> ChatMessage:
    return ChatMessage("user", text=text, context=context)


def said(text: str) -> ChatMessage:
    return ChatMessage("assistant", text=text)


def called(*contents: str, name: str = "add", text: str = "", first: int = 0) -> list[ChatMessage]:
    """An assistant's calls and their results; ``first`` numbers the first call."""
    ids = [f"toolu_{first + n}" for n in range(len(contents))]
    uses = tuple(ToolUse(id, name, {"a": n}) for n, id in enumerate(ids))
    outcomes = tuple(ToolOutcome(id, name, content) for id, content in zip(ids, contents, strict=True))
    return [ChatMessage("assistant", text=text, tool_uses=uses), ChatMessage("tool", outcomes=outcomes)]


def stored(*turns: Sequence[ChatMessage], count: Count = count) -> tuple[Message, ...]:
    """The turns as the store gives them back."""
    chats = [(f"turn_{place}", chat) for place, turn in enumerate(turns) for chat in turn]
    return tuple(Message(f"msg_{n}", "s", turn, chat, 1, n, n=n) for n, (turn, chat) in enumerate(chats, 1))


def pairs_are_whole(messages: Sequence[ChatMessage]) -> bool:
    """Each call has its result in the message behind it, and no result comes without its call."""
    before: ChatMessage | None = None
    for message in [*messages, None]:
        asked = [use.id for use in before.tool_uses] if before else []
        if asked != [outcome.tool_use_id for outcome in (message.outcomes if message else ())]:
            return False
        before = message
    return True


huge = st.builds(
    lambda piece, times: piece * times, st.sampled_from(["x", "ab ", "本", "🧵", "\n"]), st.integers(99, 900)
)
texts = st.one_of(st.text(max_size=30), st.sampled_from(["", "yes", "What was it?"]), huge)
rounds = st.tuples(texts, st.lists(texts, min_size=1, max_size=3))
"""A reply's text, and what its calls gave."""


def _turn(asked: tuple[str, str], answers: Sequence[tuple[str, list[str]]], last: str | None) -> list[ChatMessage]:
    turn = [user(*asked)]
    for text, contents in answers:
        turn += called(*contents, text=text, first=len(turn) * 10)
    return turn if last is None else [*turn, said(last)]


turns = st.builds(_turn, st.tuples(texts, texts), st.lists(rounds, max_size=3), st.one_of(st.none(), texts))
running = st.builds(_turn, st.tuples(texts, texts), st.lists(rounds, max_size=4), st.none())
conversations = st.lists(turns, max_size=6)
