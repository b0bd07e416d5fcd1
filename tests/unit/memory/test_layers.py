"""The layers and what they cost."""

from hypothesis import given
from hypothesis import strategies as st

from loom_worker.memory.layers import Layers, message_tokens, rom, stubbed, system_text, tools_tokens
from loom_worker.values.chat import ChatMessage, ToolOutcome, ToolSpec, ToolUse


def count(text: str) -> int:
    return len(text)


def test_the_system_text_is_the_same_bytes_for_any_order_of_the_kernel() -> None:
    one = Layers("ROM", {"goal": "sell", "user": "Ada"}, (), ())
    two = Layers("ROM", {"user": "Ada", "goal": "sell"}, (), ())
    assert (
        system_text(one)
        == system_text(two)
        == ("ROM\n\nWhat is known of this conversation:\n- goal: sell\n- user: Ada")
    )


def test_a_conversation_of_which_nothing_is_known_has_rom_alone() -> None:
    assert system_text(Layers("ROM", {}, (), ())) == "ROM"


def test_rom_has_no_schema_where_there_is_no_database() -> None:
    assert rom(" You help.\n", "") == "You help."
    assert rom("You help.", "orders(id)\n") == "You help.\n\nThe database you work on:\norders(id)"
    assert rom("", "") == ""


def test_every_part_of_a_message_costs_tokens() -> None:
    bare = ChatMessage("assistant", text="yes")
    parts = (
        ChatMessage("assistant", text="yes", context="ctx"),
        ChatMessage("assistant", text="yes", tool_uses=(ToolUse("id", "add", {"a": 1}),)),
        ChatMessage("assistant", text="yes", outcomes=(ToolOutcome("id", "add", "3"),)),
        ChatMessage("assistant", text="yes", opaque=({"type": "thinking"},)),
    )
    assert all(message_tokens(part, count) > message_tokens(bare, count) for part in parts)


def test_tools_cost_their_descriptions_and_nothing_where_there_are_none() -> None:
    tool = ToolSpec("add", "Adds.", {"type": "object"})
    assert tools_tokens((), count) == 0
    assert tools_tokens((tool, tool), count) > tools_tokens((tool,), count) > len("addAdds.")


@given(st.lists(st.text(max_size=80), min_size=1, max_size=4))
def test_a_stub_keeps_its_calls_and_is_never_longer(contents: list[str]) -> None:
    outcomes = tuple(ToolOutcome(str(n), "add", content) for n, content in enumerate(contents))
    stub = stubbed(ChatMessage("tool", outcomes=outcomes))
    assert [outcome.tool_use_id for outcome in stub.outcomes] == [outcome.tool_use_id for outcome in outcomes]
    assert all(len(new.content) <= len(old.content) for new, old in zip(stub.outcomes, outcomes, strict=True))
