import json
import logging
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from loom_worker.backends.mcp.listing import ListedTool, ToolListing
from loom_worker.backends.mcp.servers import Known, McpServers, Offer, environment, filled, key, used
from loom_worker.core.errors import ToolFailed, Unavailable
from loom_worker.core.values.agents import Content, McpServer, Part

SERVER = McpServer("git", command="git-mcp", args=("--stdio",), env={"TOKEN": "secret:GIT", "MODE": "fast"})


def test_a_command_is_given_nothing_of_ours_but_the_harmless() -> None:
    ours = {"PATH": "/bin", "HOME": "/root", "ANTHROPIC_API_KEY": "k", "LOOM_SECRET_GIT": "s", "AWS_TOKEN": "t"}
    assert environment(SERVER, {"GIT": "s"}, ours) == {"PATH": "/bin", "HOME": "/root", "TOKEN": "s", "MODE": "fast"}


def test_a_missing_secret_is_named() -> None:
    with pytest.raises(ToolFailed, match="LOOM_SECRET_GIT") as failed:
        filled(SERVER.env, {"OTHER": "x"})
    assert failed.value.code == "UNAVAILABLE"


def test_only_a_whole_value_is_a_secret() -> None:
    assert filled({"a": "my secret:GIT", "b": "secret:"}, {"GIT": "s"}) == {"a": "my secret:GIT", "b": "secret:"}


def test_secrets_in_use_are_known_longest_first() -> None:
    server = replace(SERVER, headers={"X": "secret:LONG", "Y": "secret:NONE"})
    assert used(server, {"GIT": "s", "LONG": "sss", "UNUSED": "u"}) == ("sss", "s")


def test_the_key_is_of_the_server_and_not_of_the_agent_that_names_it() -> None:
    assert key(replace(SERVER, name="other", tools=("a",))) == key(SERVER)
    others = [
        replace(SERVER, command="x"),
        replace(SERVER, args=()),
        replace(SERVER, env={}),
        replace(SERVER, headers={"a": "b"}),
        replace(SERVER, allow_private=True),
        replace(SERVER, command=None, url="http://x"),
    ]
    assert len({key(server) for server in (SERVER, *others)}) == len(others) + 1


ONE = ToolListing((ListedTool("a", "", {"type": "object"}),))
TWO = ToolListing((*ONE.tools, ListedTool("b", "", {"type": "object"})))


class Stage:
    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.readings: list[Future[None]] = []
        self.is_down = False
        self.known = Known("k", "s", remember=self.remember, recall=self.recall, read=self.read, look_every_s=0.0)

    def remember(self, key: str, text: str) -> None:
        if self.is_down:
            raise Unavailable("no Redis")
        self.kept[key] = text

    def recall(self, key: str) -> str | None:
        if self.is_down:
            raise Unavailable("no Redis")
        return self.kept.get(key)

    def read(self) -> Future[None]:
        self.readings.append(Future())
        return self.readings[-1]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_what_is_remembered_starts_no_server(stage: Stage) -> None:
    stage.kept["k"] = json.dumps(ONE.as_json())
    assert stage.known.look() is None
    assert stage.known.listing == ONE
    assert stage.readings == []


def test_what_nobody_knows_is_read_once_however_many_ask(stage: Stage) -> None:
    waits = {stage.known.look() for _ in range(3)}
    assert len(stage.readings) == 1
    stage.known.found(ONE)
    stage.readings[0].set_result(None)
    (waited,) = waits
    assert waited is not None
    assert waited.done()
    assert stage.known.listing == ONE
    assert json.loads(stage.kept["k"]) == ONE.as_json()


def test_a_list_that_lapsed_holds_until_it_is_read_again(stage: Stage) -> None:
    stage.known.found(ONE)
    stage.kept.clear()
    assert stage.known.look() is not None
    stage.readings[0].set_exception(ToolFailed("it is down", "UNAVAILABLE"))
    assert stage.known.listing == ONE
    assert stage.known.problem == "it is down"
    stage.known.look()
    assert len(stage.readings) == 2


def test_what_another_process_read_is_taken_over(stage: Stage) -> None:
    stage.known.found(ONE)
    stage.kept["k"] = json.dumps(TWO.as_json())
    stage.known.look()
    assert stage.known.listing == TWO


def test_a_list_that_others_are_known_to_have_is_taken_over_at_once_and_no_server_is_asked(stage: Stage) -> None:
    assert stage.known.digest() is None
    stage.known.found(ONE)
    before = stage.known.digest()
    stage.kept["k"] = json.dumps(TWO.as_json())
    assert stage.known.digest() == before
    stage.known.renew()
    assert stage.known.listing == TWO
    assert stage.known.digest() != before
    stage.kept.clear()
    stage.known.renew()
    assert stage.known.listing == TWO
    assert stage.readings == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tools": [[1]], "problems": []}', '{"tools": 3, "problems": []}'])
def test_a_memory_that_cannot_be_read_is_none(stage: Stage, text: str) -> None:
    stage.kept["k"] = text
    stage.known.look()
    assert len(stage.readings) == 1


def test_without_redis_tools_are_still_found(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.is_down = True
    stage.known.look()
    stage.known.found(ONE)
    stage.readings[0].set_result(None)
    assert stage.known.listing == ONE
    assert "no Redis" in caplog.text


def test_the_same_problem_is_logged_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        stage.known.look()
        stage.readings[-1].set_exception(ToolFailed("it is down"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


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
