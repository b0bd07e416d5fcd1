from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolUse
from loom_worker.memory.results import folded, rounds

QUESTION = ChatMessage("user", "How many?", context="Today.")


def round_of(n: int) -> tuple[ChatMessage, ChatMessage]:
    uses = (ToolUse(f"t{n}", "look", {"n": n}),)
    result = ToolOutcome(f"t{n}", "look", "9")
    return ChatMessage("assistant", "I look.", tool_uses=uses), ChatMessage("tool", outcomes=(result,))


TURN = (QUESTION, *round_of(1), *round_of(2), *round_of(3))


def test_the_oldest_calls_leave_with_their_results_and_a_line_says_so() -> None:
    question, *rest = folded(TURN, 2)
    assert tuple(rest) == round_of(3)
    assert question.text == "How many?"
    assert question.context.startswith("Today.\n\n[2 earlier tool calls of this turn (look, look)")


def test_nothing_is_folded_if_nothing_must() -> None:
    assert folded(TURN, 0) == TURN
    assert rounds(TURN) == 3


def test_a_turn_may_be_folded_to_its_question() -> None:
    [question] = folded(TURN, 3)
    assert question.text == "How many?"


def test_many_calls_are_named_in_part() -> None:
    uses = tuple(ToolUse(f"t{n}", f"tool{n}", {}) for n in range(30))
    results = ChatMessage("tool", outcomes=tuple(ToolOutcome(use.id, use.name, "9") for use in uses))
    line = folded((QUESTION, ChatMessage("assistant", tool_uses=uses), results), 1)[0].context
    assert "30 earlier tool calls" in line
    assert "tool9, …" in line
