import json
import subprocess
import sys
import threading
from pathlib import Path

from loom_worker.backends.mcp.listing import ListedTool, ToolListing
from loom_worker.backends.mcp.servers import McpServers, Offer
from loom_worker.core.values.agents import Content, McpServer, Part

ROOT = Path(__file__).parents[4]
OBJECT = {"type": "object"}


def test_importing_the_room_loads_no_sdk() -> None:
    heavy = "mcp mcp_types httpx2 anyio pydantic jsonschema".split()
    code = f"import sys, loom_worker.backends.mcp.servers; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_without_servers_nothing_is_started() -> None:
    before = set(threading.enumerate())
    servers = McpServers(secrets={}, remember=lambda key, text: None, recall=lambda key: None, timeout_s=1.0)
    assert servers.tools([]) == Offer()
    assert servers.stamp([]) == servers.stamp([])
    servers.close()
    servers.close()
    assert set(threading.enumerate()) == before


def test_the_list_of_a_server_is_a_part_of_what_all_processes_must_have_alike() -> None:
    """By the next turn, and not only when this process looks again, every five seconds."""
    parts: dict[str, Part] = {}

    class Others(Content):
        def follow(self, name: str, part: Part) -> None:
            parts[name] = part

    def kept(name: str) -> str:
        return json.dumps(ToolListing((ListedTool(name, "", OBJECT),)).as_json())

    texts = [kept("one")]
    servers = McpServers(secrets={}, remember=lambda key, text: None, recall=lambda key: texts[-1], timeout_s=1.0)
    servers.share(Others())
    ours = [McpServer("a", command="x")]
    before = servers.stamp(ours)
    texts.append(kept("two"))
    assert servers.stamp(ours) == before
    ((name, part),) = parts.items()
    assert name.startswith("mcp:")
    part.renew()
    assert servers.stamp(ours) != before
    assert [tool.spec.name for tool in servers.tools(ours).tools] == ["a__two"]
    servers.close()


def test_tools_of_two_servers_never_share_a_name() -> None:
    kept = json.dumps(ToolListing((ListedTool("b__c", "", OBJECT), ListedTool("c", "", OBJECT))).as_json())
    servers = McpServers(secrets={}, remember=lambda key, text: None, recall=lambda key: kept, timeout_s=1.0)
    offer = servers.tools([McpServer("a", command="x"), McpServer("a__b", command="y")])
    assert len({tool.spec.name for tool in offer.tools}) == 4
    assert "a__c" in {tool.spec.name for tool in offer.tools}
    servers.close()
