"""What holds over a command's pipes and over HTTP, with servers of the official SDK."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.agents import McpServer
from loom_worker.core.values.tools import Tool
from tests.support.mcp_servers.stage import Stage, listening, run, sdk, staged
from tests.support.until import until

pytestmark = [pytest.mark.integration, pytest.mark.heavy, pytest.mark.takes(8)]


@dataclass(frozen=True)
class Scene:
    stage: Stage
    server: McpServer
    tools: dict[str, Tool]
    folder: Path


@pytest.fixture(scope="module", params=["stdio", "http", "http json"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("mcp")
    with ExitStack() as stack:
        how, *options = request.param.split()
        server = sdk(folder) if how == "stdio" else stack.enter_context(listening(folder, *options))[0]
        stage = stack.enter_context(staged(timeout_s=30.0))
        yield Scene(stage, server, stage.tools(server), folder)


def test_tools_are_taken_over_with_their_schemas_and_hints(scene: Scene) -> None:
    add = scene.tools["add"]
    assert add.spec.name == "sdk__add"
    assert add.spec.description == "Add two numbers."
    assert add.spec.input_schema["required"] == ["a", "b"]
    assert (add.group, add.origin, add.needs_approval) == ("mcp:sdk", None, False)
    assert (add.is_idempotent, add.is_read_only, add.is_repeatable) == (True, False, False)
    assert (scene.tools["echo"].is_idempotent, scene.tools["echo"].is_repeatable) == (True, True)
    assert (scene.tools["pid"].is_idempotent, scene.tools["pid"].is_read_only) == (False, False)


def test_only_tools_that_the_operator_listed_count_as_reading_only(scene: Scene) -> None:
    listed = scene.stage.tools(replace(scene.server, tools=("add", "pid")))
    assert {name: tool.is_read_only for name, tool in listed.items()} == {"add": True, "pid": False}


def test_what_a_tool_gives_arrives(scene: Scene) -> None:
    assert run(scene.tools["add"], a=1, b=2) == {"result": 3}
    assert run(scene.tools["whole"]) == {"rows": [[1, None, "ä"]], "ok": True}
    assert run(scene.tools["echo"], text="Grüße 🧵\u2028 \0") == "Grüße 🧵\u2028 \0"
    assert run(scene.tools["echo"], text="a", more=None) == "a and null"


def test_every_kind_of_content_has_its_value(scene: Scene) -> None:
    assert run(scene.tools["mixed"]) == [
        {"type": "text", "text": "see"},
        {"type": "image", "url": "data:image/png;base64,MTIzNDU="},
        {"type": "audio", "mime_type": "audio/wav", "bytes": 5},
        {"type": "resource", "uri": "file:///a.txt", "mime_type": "text/plain", "text": "inside"},
        {"type": "resource", "mime_type": "application/x", "bytes": 5, "uri": "file:///a.bin"},
        {"type": "resource_link", "uri": "file:///b.txt", "name": "b", "mime_type": "text/plain"},
    ]


def test_a_result_of_five_megabytes_arrives_whole(scene: Scene) -> None:
    assert run(scene.tools["large"], size=5_000_000) == "ä" * 2_500_000


def test_a_tools_own_failure_is_told_in_its_words_and_blames_no_server(scene: Scene) -> None:
    with pytest.raises(ToolFailed, match="the shelf is empty") as failed:
        run(scene.tools["fails"])
    assert failed.value.code is None


def test_ten_calls_of_ten_threads_overlap(scene: Scene) -> None:
    with ThreadPoolExecutor(10) as pool:
        found = pool.map(lambda n: run(scene.tools["meets"], name=str(n), others=10), range(10))
        assert list(found) == [str(n) for n in range(10)]


def test_a_changed_list_of_tools_changes_the_stamp_and_the_tools(scene: Scene) -> None:
    before = scene.stage.servers.stamp([scene.server])
    assert "grown" not in scene.tools
    run(scene.tools["grows"])
    until(lambda: scene.stage.servers.stamp([scene.server]) != before, 10, "the new list is known")
    assert run(scene.stage.tools(scene.server)["grown"])["result"] == run(scene.tools["pid"])


def test_a_call_that_takes_too_long_is_cancelled_on_the_server_which_lives_on(tmp_path: Path, scene: Scene) -> None:
    pid = run(scene.tools["pid"])
    with staged(timeout_s=4.0) as hasty:  # of which a call gets 3; the others must answer within it on any machine
        hasty.kept.update(scene.stage.kept)
        tools = hasty.tools(scene.server)
        until(lambda: _answers(tools["pid"]), 10, "a session of its own")
        own = run(tools["pid"])
        with pytest.raises(
            ToolFailed, match=r"MCP server 'sdk' is unavailable: it did not answer within 3 s"
        ) as failed:
            run(tools["waits"])
        assert failed.value.code == "UNAVAILABLE"
        until((scene.folder / "cancelled").exists, 5, "the server heard that nobody waits")
        assert run(tools["pid"]) == own
    assert run(scene.tools["pid"]) == pid


def _answers(tool: Tool) -> bool:
    try:
        run(tool)
    except ToolFailed:
        return False
    return True
