"""The layers and what they cost."""

from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolSpec, ToolUse
from loom_worker.memory.layers import MORE_TABLES, chat_tokens, message_tokens, rom, tools_tokens, turns
from tests.unit.memory.talk import count, said, stored, user

PLENTY = 10_000


def test_rom_has_no_schema_where_there_is_no_database() -> None:
    assert rom(" You help.\n", "", allowance_tokens=PLENTY, count=count) == "You help."
    assert rom("", "", allowance_tokens=0, count=count) == ""


def test_rom_is_the_prompt_and_then_the_schema() -> None:
    whole = "You help.\n\nThe database you work on:\norders(id)"
    assert rom("You help.", "orders(id)\n", allowance_tokens=len(whole), count=count) == whole


def test_a_schema_over_the_allowance_is_cut_between_lines_and_says_so() -> None:
    schema = "\n".join(f"table_{n}(id INTEGER PK)" for n in range(20))
    text = rom("You help.", schema, allowance_tokens=300, count=count)
    *lines, last = text.removeprefix("You help.\n\nThe database you work on:\n").splitlines()
    assert lines == schema.splitlines()[: len(lines)]
    assert last == MORE_TABLES
    assert 300 - len("table_0(id INTEGER PK)\n") < len(text) <= 300


def test_a_prompt_is_never_cut_whatever_its_length() -> None:
    text = rom("p" * 500, "orders(id)\nstores(id)", allowance_tokens=100, count=count)
    assert text == f"{'p' * 500}\n\nThe database you work on:\n{MORE_TABLES}"


@given(st.text(), st.text(), st.integers(0, 400))
def test_rom_is_the_same_bytes_every_time_and_within_its_allowance_but_for_the_prompt(
    prompt: str, schema: str, allowance: int
) -> None:
    text = rom(prompt, schema, allowance_tokens=allowance, count=count)
    assert text == rom(prompt, schema, allowance_tokens=allowance, count=count)
    assert text.startswith(prompt.strip())
    assert len(text) <= max(allowance, len(prompt.strip()) + len(MORE_TABLES) + len("\n\nThe database you work on:\n"))


def test_every_part_of_a_message_costs_tokens() -> None:
    bare = ChatMessage("assistant", text="yes")
    parts = (
        ChatMessage("assistant", text="yes", context="ctx"),
        ChatMessage("assistant", text="yes", tool_uses=(ToolUse("id", "add", {"a": 1}),)),
        ChatMessage("assistant", text="yes", outcomes=(ToolOutcome("id", "add", "3"),)),
        ChatMessage("assistant", text="yes", opaque=({"type": "thinking"},)),
    )
    assert all(message_tokens(part, count) > message_tokens(bare, count) for part in parts)
    assert chat_tokens(parts, count) == sum(message_tokens(part, count) for part in parts)


def test_tools_cost_their_descriptions_and_nothing_where_there_are_none() -> None:
    tool = ToolSpec("add", "Adds.", {"type": "object"})
    assert tools_tokens((), count) == 0
    assert tools_tokens((tool, tool), count) > tools_tokens((tool,), count) > len("addAdds.")


def test_a_history_falls_into_its_turns() -> None:
    first, second = [user("1"), said("one")], [user("2")]
    assert [[message.chat for message in turn] for turn in turns(stored(first, second))] == [first, second]
    assert turns(()) == []
