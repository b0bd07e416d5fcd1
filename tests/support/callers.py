"""On whose behalf tools run in tests, and tools to be shown."""

from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool

CALLER = Caller(lane="ab12", session_id="s1", workspace="default", turn_id="turn_1", call_id="toolu_1")


def a_tool(name: str, description: str, schema: Json) -> Tool:
    """A tool that answers with its own name."""
    return Tool(ToolSpec(name, description, schema), lambda arguments, caller: name)
