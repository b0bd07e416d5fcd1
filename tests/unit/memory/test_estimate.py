from dataclasses import replace

import pytest

from loom_worker.core.values.chat import ChatMessage, Frame, ToolOutcome, ToolSpec, ToolUse
from loom_worker.memory.layers import (
    REQUEST_OVERHEAD_TOKENS,
    chat_tokens,
    corrected,
    correction,
    tools_tokens,
    usual_tokens,
)

FRAME = Frame(tools=500, tool=12, request=3, message=3, call=42)
ASKED = ChatMessage("user", "one two three")
CALLED = ChatMessage("assistant", tool_uses=(ToolUse("a", "find", {}), ToolUse("b", "find", {})))
ANSWERED = ChatMessage("tool", outcomes=(ToolOutcome("a", "find", "four"), ToolOutcome("b", "find", "five")))
FIND = ToolSpec("find", "Finds", {})


def words(text: str) -> int:
    return len(text.split())


def usual(*messages: ChatMessage, tools: tuple[ToolSpec, ...] = (), share: float = 1.0, frame: Frame = FRAME) -> float:
    bound = REQUEST_OVERHEAD_TOKENS + chat_tokens(messages, words) + tools_tokens(tools, words)
    return usual_tokens(bound, messages, len(tools), text_share=share, frame=frame, count=words)


def test_what_stands_around_texts_is_what_is_usual_and_not_the_most_that_it_can_be() -> None:
    assert usual(ASKED) == 3 + 3 + 3
    assert usual(ASKED, tools=(FIND, FIND)) == 9 + 500 + 2 * (12 + words("findFinds{}"))
    calls = sum(map(words, ("find{}", "find{}", "find", "four", "find", "five")))
    assert usual(ASKED, CALLED, ANSWERED) == 9 + 2 * 3 + 2 * 42 + calls


def test_only_texts_are_scaled() -> None:
    assert usual(ASKED, share=0.5) == 3 + 3 + 1.5


@pytest.mark.parametrize("bound", [0, 10])
def test_a_request_whose_parts_are_unknown_is_no_less_than_its_frame(bound: int) -> None:
    assert usual_tokens(bound, (), 1, text_share=1.0, frame=FRAME, count=words) == 3 + 500 + 12


def test_the_thinking_of_turns_that_have_ended_counts_only_where_the_provider_reads_it() -> None:
    thought = ChatMessage("assistant", "five", opaque=({"type": "thinking", "thinking": "six seven eight"},))
    forgets = replace(FRAME, keeps_thinking=False)
    assert usual(ASKED, thought, ASKED) - usual(ASKED, thought, ASKED, frame=forgets) == 3
    assert usual(ASKED, thought, ANSWERED, frame=forgets) == usual(ASKED, thought, ANSWERED)


def test_the_error_of_a_tiny_request_is_added_and_that_of_a_long_one_grows_with_the_text() -> None:
    assert corrected(40, correction(80, 10)) == pytest.approx(114, abs=1)
    assert corrected(20_000, correction(12_000, 10_000)) == pytest.approx(24_000, rel=0.01)
    assert corrected(40, correction(100, 1_000)) == 20
