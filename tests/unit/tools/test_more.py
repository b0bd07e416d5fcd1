"""Tools that are asked for by name."""

import pytest

from loom_worker.core.values.chat import ChatMessage, ToolUse
from loom_worker.core.values.tools import Caller
from loom_worker.tools.registry import MORE, Registry, asked_for, more_tool

CALLER = Caller("l", "s", "default", "turn_1", "call_1")


def test_only_tools_there_are_can_be_asked_for() -> None:
    tool = more_tool(["shared_memory_read", "load_pattern"])
    registry = Registry([tool])
    assert registry.error_in(ToolUse("1", MORE, {"names": ["load_pattern"]})) is None
    assert registry.error_in(ToolUse("1", MORE, {"names": ["drop_tables"]})) is not None
    assert registry.error_in(ToolUse("1", MORE, {"names": []})) is not None
    assert "load_pattern" in str(tool.run({"names": ["load_pattern"]}, CALLER))


@pytest.mark.cases("names", [None, "load_pattern", 3, [1, {}], {"a": 1}])
def test_a_call_that_was_refused_for_its_arguments_asks_for_nothing_that_breaks(names: object) -> None:
    said = ChatMessage("assistant", "", tool_uses=(ToolUse("1", MORE, {"names": names}),))
    assert asked_for([said]) >= {MORE}


def test_what_was_asked_for_or_called_is_found_in_the_conversation() -> None:
    uses = (ToolUse("1", MORE, {"names": ["load_pattern"]}), ToolUse("2", "search_conversation", {"query": "tea"}))
    said = [ChatMessage("user", "?"), ChatMessage("assistant", "", tool_uses=uses)]
    assert asked_for(said) == {MORE, "load_pattern", "search_conversation"}
