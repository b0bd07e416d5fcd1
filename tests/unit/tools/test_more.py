"""Tools that are asked for by name."""

import pytest

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.chat import ChatMessage, ToolSpec, ToolUse
from loom_worker.core.values.tools import Caller
from loom_worker.tools.registry import MORE, Registry, asked_for, more_tool

CALLER = Caller("l", "s", "default", "turn_1", "call_1")


def test_only_tools_there_are_can_be_asked_for() -> None:
    tool = more_tool([ToolSpec(name, "", {}) for name in ("shared_memory_read", "load_pattern")])
    registry = Registry([tool])
    assert registry.prepared(ToolUse("1", MORE, {"names": ["load_pattern"]})).error is None
    assert registry.prepared(ToolUse("1", MORE, {"names": ["drop_tables"]})).error is not None
    assert registry.prepared(ToolUse("1", MORE, {"names": []})).error is not None
    assert "load_pattern" in str(tool.run({"names": ["load_pattern"]}, CALLER))


@pytest.mark.cases("names", [None, "load_pattern", 3, [1, {}], {"a": 1}])
def test_a_call_that_was_refused_for_its_arguments_asks_for_nothing_that_breaks(names: object) -> None:
    said = ChatMessage("assistant", "", tool_uses=(ToolUse("1", MORE, {"names": names}),))
    assert asked_for([said]) >= {MORE}


ANY = {"banned MEMBERS": "ban_member", "guild/42": "t_42", "getting WebHooks": "listWebhooks", "the store": "z"}


@pytest.mark.cases(("query", "first"), [*ANY.items()])
def test_of_many_tools_any_is_found_by_words(query: str, first: str) -> None:
    others = {"ban_member": "Keep someone out", "listWebhooks": "", "z": "What the store sells"}
    described = {f"t_{n}": f"Reads /guild/{n}" for n in range(200)} | others
    tool = more_tool([ToolSpec(name, text, {"type": "object"}) for name, text in described.items()])
    best = str(tool.run({"query": query}, CALLER)).splitlines()[1:]
    assert (best[0], len(best) <= 20 and len(str(tool.spec)) < 1000) == (f"{first}: {described[first]}", True)


@pytest.mark.cases("arguments", [{}, {"query": "zebra"}, {"query": ""}, {"query": "?"}, {"names": ["zebra"]}])
def test_what_is_not_among_many_tools_is_told(arguments: dict[str, object]) -> None:
    tool = more_tool([ToolSpec(f"thing_{n}", "", {}) for n in range(200)])
    with pytest.raises(ToolFailed):
        tool.run(arguments, CALLER)


def test_what_was_asked_for_or_called_is_found_in_the_conversation() -> None:
    uses = (ToolUse("1", MORE, {"names": ["load_pattern"]}), ToolUse("2", "search_conversation", {"query": "tea"}))
    said = [ChatMessage("user", "?"), ChatMessage("assistant", "", tool_uses=uses)]
    assert asked_for(said) == {MORE, "load_pattern", "search_conversation"}
