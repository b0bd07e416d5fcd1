"""The tool by which a model gets those it seldom needs, where its window is too small to show them all."""

from collections.abc import Iterable, Sequence

from loom_worker.core.values.chat import ChatMessage, ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool

MORE = "more_tools"


def more_tool(names: Sequence[str]) -> Tool:
    """``more_tools``, which offers these by name; asked_for finds which of them a conversation asked for."""

    def run(arguments: Json, _caller: Caller) -> str:
        return f"You can call them now: {', '.join(arguments['names'])}"

    wanted = {"type": "array", "items": {"enum": list(names)}, "minItems": 1}
    schema = {"type": "object", "properties": {"names": wanted}, "required": ["names"], "additionalProperties": False}
    return Tool(ToolSpec(MORE, "Get further tools, which are not shown to save room.", schema), run, is_bounded=True)


def asked_for(messages: Iterable[ChatMessage]) -> frozenset[str]:
    """The tools that were asked for in these messages, or called in them."""
    uses = [use for message in messages for use in message.tool_uses]
    wanted = [use.arguments.get("names") for use in uses if use.name == MORE]
    # A call that was refused for its arguments may hold anything.
    asked = {name for names in wanted if isinstance(names, list) for name in names if isinstance(name, str)}
    return frozenset({use.name for use in uses} | asked)
