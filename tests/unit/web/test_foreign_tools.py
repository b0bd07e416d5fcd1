"""No tool that Loom gives to agents reads or changes what belongs to another session, whatever ids the model names.

The test fails for a new tool with an argument that is neither known to name something nor known to name nothing.
"""

import json
from collections.abc import Callable, Iterator, Mapping

import pytest
from jsonschema import Draft202012Validator

from loom_worker.agents.load import load
from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Tool
from tests.support.belongings import Belongings, belongings
from tests.support.registry import made_components
from tests.support.web_stage import WebStage

OURS, THEIRS = "ours7f3", "theirs9c1"
KEY = "plan"
Arguments = Callable[[Belongings, Belongings], Json]
"""From whose things are asked for and who asks, to what a model would say."""

NAMING: Mapping[tuple[str, str], Arguments] = {
    ("get_tool_result", "ref"): lambda owner, _: {"ref": owner.ids["ref"]},
    ("query_tool_result", "ref"): lambda owner, _: {"ref": owner.ids["ref"], "sql": "SELECT * FROM result"},
    ("query_tool_result", "refs"): lambda owner, asking: {
        "ref": asking.ids["ref"],
        "refs": {"other": owner.ids["ref"]},
        "sql": "SELECT * FROM other",
    },
    ("get_error_detail", "error_id"): lambda owner, _: {"error_id": owner.ids["error_id"]},
    ("search_conversation", "query"): lambda owner, _: {"query": f"{owner.marker} asks told pays"},
    ("recall_conversation", "offset"): lambda *_: {"offset": 0, "limit": 50},
    ("shared_memory_read", "key"): lambda *_: {"key": KEY, "namespace": "GLOBAL"},
    ("shared_memory_write", "key"): lambda *_: {"key": KEY, "value": "overwritten", "namespace": "GLOBAL"},
    ("shared_memory_delete", "key"): lambda *_: {"key": KEY, "namespace": "GLOBAL"},
    ("shared_memory_list", "prefix"): lambda *_: {"prefix": "", "namespace": "GLOBAL"},
    ("shared_memory_list", "after"): lambda *_: {"after": "a", "namespace": "GLOBAL"},
    ("shared_memory_watch", "prefix"): lambda *_: {"prefix": "", "wait_s": 0, "namespace": "GLOBAL"},
    ("update_session_context", "notes"): lambda *_: {"notes": {"plan": "overwritten"}},
    ("clear_recalled_context", ""): lambda *_: {},
}
"""Tools and arguments by which something could be found that is another's; no argument: the tool itself does it."""
OF_FILES = frozenset({"load_pattern", "list_patterns", "read_skill_file"})
"""They read the operator's files: patterns are the same for all, skills are those of the caller's workspace."""
HARMLESS = frozenset(
    "offset limit path sql namespace promote value expected_version since_version wait_s user goals preferences".split()
)
"""Arguments that name nothing somebody could own."""
OF_THE_WORKSPACE = "shared_memory_"
"""Tools whose keys all sessions of a workspace share, on purpose."""


@pytest.fixture
def tools(stage: WebStage) -> Iterator[Mapping[str, Tool]]:
    components = made_components(stage.service.settings, load(None), stage.database)
    yield {tool.spec.name: tool for tool in components.registry.own(Agent("default", backend=None))}
    components.close()


def holder(workspace: str, user: str | None = None) -> KeyHolder:
    return KeyHolder(workspace, ALL_SCOPES, user)


def said(tool: Tool, arguments: Json, asking: Belongings) -> str:
    """What the model reads."""
    Draft202012Validator(tool.spec.input_schema).validate(arguments)
    try:
        answer = tool.run(arguments, asking.caller)
    except ToolFailed as error:
        return str(error)
    return answer if isinstance(answer, str) else json.dumps(answer)


def test_every_argument_of_every_tool_is_known(tools: Mapping[str, Tool]) -> None:
    arguments = {
        (name, argument)
        for name, tool in tools.items()
        if name not in OF_FILES
        for argument in tool.spec.input_schema.get("properties", {})
        if argument not in HARMLESS
    }
    assert arguments - NAMING.keys() == set(), "say in NAMING how to ask for another's things, or that it is HARMLESS"
    assert {name for name, _ in NAMING} | OF_FILES == tools.keys()


@pytest.mark.parametrize(
    "asking",
    [holder("beta"), holder("alpha", "john"), holder("alpha"), holder("beta", "maria")],
    ids=["another workspace", "another user", "another session", "a user of that name elsewhere"],
)
def test_no_tool_reads_or_changes_what_another_session_has(
    tools: Mapping[str, Tool], stage: WebStage, asking: KeyHolder
) -> None:
    ours = belongings(stage, holder("alpha", "maria"), OURS)
    theirs = belongings(stage, asking, THEIRS)
    is_elsewhere = asking.workspace != "alpha"
    written = {"key": KEY, "value": OURS, "namespace": "GLOBAL"}
    tools["shared_memory_write"].run(written, ours.caller)
    before = owned(tools, stage, ours)
    for (name, argument), arguments in NAMING.items():
        if is_elsewhere or not name.startswith(OF_THE_WORKSPACE):
            # The query is the model's own text, and may be repeated.
            answer = said(tools[name], arguments(ours, theirs), theirs)
            assert OURS not in answer, (name, argument)
    assert owned(tools, stage, ours) == before


def owned(tools: Mapping[str, Tool], stage: WebStage, owner: Belongings) -> list[str]:
    """All that the owner's session finds; each thing must be there, or not finding it would prove nothing."""
    reading = [key for key in NAMING if key[0] not in ("shared_memory_write", "shared_memory_delete")]
    changing = ("update_session_context", "clear_recalled_context", "search_conversation")
    found = {key: said(tools[key[0]], NAMING[key](owner, owner), owner) for key in reading if key[0] not in changing}
    assert [key for key, text in found.items() if OURS not in text and key[1] not in ("prefix", "after")] == []
    searched = said(tools["search_conversation"], {"query": f"{OURS} asks", "promote": False}, owner)
    assert OURS in searched
    kernel = stage.service.sessions.get("alpha", owner.ids["session_id"]).kernel
    return [*found.values(), searched, json.dumps(kernel)]
