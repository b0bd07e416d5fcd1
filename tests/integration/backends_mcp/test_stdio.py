"""Commands that die, hang and misbehave."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loom_worker.backends.mcp.connection import Limits
from loom_worker.backends.mcp.servers import key
from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.agents import McpServer
from tests.support.mcp_servers.stage import Stage, mute, odd, run, sdk, staged
from tests.support.processes import is_alive
from tests.support.until import until

pytestmark = [pytest.mark.integration, pytest.mark.heavy, pytest.mark.takes(20)]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged(timeout_s=30.0, GIT="s3cret") as stage:
        yield stage


def pids(folder: Path) -> list[int]:
    return [int(pid) for pid in until(lambda: _text(folder / "pids"), 10, "the server runs").split()]


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_server_killed_in_mid_call_fails_that_call_and_serves_the_next(stage: Stage, tmp_path: Path) -> None:
    tools = stage.tools(sdk(tmp_path))
    first = run(tools["pid"])
    with pytest.raises(ToolFailed, match="MCP server 'sdk' is unavailable: it was killed by signal 9") as failed:
        run(tools["dies"])
    assert failed.value.code == "UNAVAILABLE"
    assert run(tools["pid"]) != first


def test_a_server_that_stopped_listening_to_anything_is_killed_and_started_anew(tmp_path: Path) -> None:
    with staged(timeout_s=2.0) as stage:
        tools = stage.tools(sdk(tmp_path))
        with pytest.raises(ToolFailed, match=r"did not answer within 1.5 s"):
            run(tools["blocks"])
        hung = int((tmp_path / "blocked").read_text())
        until(lambda: not is_alive(hung), 5, "the deaf server was killed")
        until(lambda: _runs(stage, sdk(tmp_path)), 20, "another one serves")


def _runs(stage: Stage, server: McpServer) -> bool:
    try:
        return bool(run(stage.tools(server)["pid"]))
    except ToolFailed:
        return False


def test_a_call_during_the_examination_of_a_hung_server_is_served_by_the_next_one() -> None:
    with staged(timeout_s=4.0) as stage:
        tools = stage.tools(odd("well"))
        with pytest.raises(ToolFailed, match="did not answer"):
            run(tools["deaf"])
        assert run(tools["echo"]) == "said"


def test_a_command_is_given_its_secrets_and_nothing_of_ours(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_SECRET_GIT", "s3cret")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "ours")
    given = run(stage.tools(sdk(tmp_path, env={"TOKEN": "secret:GIT"}))["environment"]).splitlines()
    assert "TOKEN=s3cret" in given
    assert [line for line in given if line.startswith(("LOOM_", "ANTHROPIC_", "PYTEST_"))] == []


def test_remembered_tools_are_listed_without_a_start_and_fail_at_once_while_the_server_is_down(stage: Stage) -> None:
    stage.tools(odd("well"))
    down = McpServer("down", command=sys.executable, args=("-S", "-c", "raise SystemExit('no disk')"))
    stage.kept[key(down)] = stage.kept[key(odd("well"))]
    tools = stage.tools(down)
    for _ in range(2):
        with pytest.raises(ToolFailed, match="exited with status 1: no disk") as failed:
            run(tools["echo"])
        assert failed.value.code == "UNAVAILABLE"
    with pytest.raises(ToolFailed, match="it is tried again in"):
        run(tools["echo"])


def test_only_the_tools_that_the_file_names_are_offered(stage: Stage) -> None:
    offer = stage.servers.tools([odd("well", tools=("null", "echo", "absent"))])
    assert [tool.spec.name for tool in offer.tools] == ["odd__null", "odd__echo"]
    assert offer.problems == ("MCP server 'odd': it has no usable tool 'absent'",)


def test_two_agents_with_one_server_share_its_process(stage: Stage) -> None:
    stage.tools(odd("well"))
    stage.tools(replace(odd("well"), name="other", tools=("echo",)))
    assert len(stage.kept) == 1


def test_a_bad_tool_costs_only_itself(stage: Stage) -> None:
    offer = stage.servers.tools([odd("bad tools")])
    assert [tool.spec.name for tool in offer.tools] == ["odd__good"]
    assert len(offer.problems) == 6
    assert all(problem.startswith("MCP server 'odd': the tool ") for problem in offer.problems)


def test_a_list_without_end_is_cut(stage: Stage) -> None:
    offer = stage.servers.tools([odd("many tools")])
    assert len(offer.tools) == 128
    assert offer.problems == ("MCP server 'odd': only the first 128 tools were taken",)


def test_noise_on_standard_output_harms_nothing(stage: Stage) -> None:
    assert run(stage.tools(odd("well"))["echo"]) == "said"


def test_half_a_character_costs_only_itself(stage: Stage) -> None:
    assert run(stage.tools(odd("well"))["half"]) == "cut ?"


def test_nulls_reach_the_server_and_come_back(stage: Stage) -> None:
    assert run(stage.tools(odd("well"))["null"], a=None, b=[None]) == {"given": {"a": None, "b": [None]}}


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("huge", "was ended, since it sent too much"),
        ("flood", "more than 2000 messages that answer nothing"),
        ("leave", "exited with status 3: I must go"),
    ],
)
def test_a_server_that_goes_too_far_fails_its_call_and_serves_the_next(stage: Stage, tool: str, why: str) -> None:
    tools = stage.tools(odd("well"))
    with pytest.raises(ToolFailed, match=why) as failed:
        run(tools[tool])
    assert failed.value.code == "UNAVAILABLE"
    assert run(tools["echo"]) == "said"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("no-such-command-of-ours",), "exited with status 127: no-such-command-of-ours: No such file"),
        (("true",), "exited with status 0"),
        (("sh", "-c", "echo no key s3cret >&2; exit 3"), "exited with status 3: no key [*]{3}"),
        (("yes",), "more than 2000 messages that answer nothing"),
        (("cat",), "does not speak the protocol"),
        ((sys.executable, str(ROOT / "tests/support/mcp_servers/odd.py"), "old"), "Unsupported protocol version"),
    ],
)
def test_a_command_that_is_no_server_says_why_it_gives_no_tools(
    stage: Stage, command: tuple[str, ...], why: str
) -> None:
    server = McpServer("none", command=command[0], args=command[1:], env={"KEY": "secret:GIT"})
    assert re.search(f"^MCP server 'none': it .*{why}", stage.problem(server))


def test_a_secret_that_is_not_there_is_named(stage: Stage) -> None:
    assert "set LOOM_SECRET_NONE" in stage.problem(odd("well", env={"A": "secret:NONE"}))


def test_a_server_that_never_says_hello_is_given_up_and_killed(tmp_path: Path) -> None:
    with staged(limits=Limits(start_s=2, discovery_s=30)) as stage:
        assert "did not answer within 2 s of its start" in stage.problem(mute(tmp_path))
        (pid,) = pids(tmp_path)
        until(lambda: not is_alive(pid), 5, "it was killed")


def test_whoever_asks_for_tools_does_not_wait_for_a_slow_server_for_ever(tmp_path: Path) -> None:
    with staged(limits=Limits(start_s=30, discovery_s=0.2)) as stage:
        assert "its tools were not read within 0.2 s; they come when they are" in stage.problem(mute(tmp_path))
        (pid,) = pids(tmp_path)
    until(lambda: not is_alive(pid), 5, "it ended with the stage")


def test_a_server_that_nobody_asks_is_ended_and_started_again_when_needed(tmp_path: Path) -> None:
    with staged(limits=Limits(idle_s=0.2)) as stage:
        tools = stage.tools(odd("family", tmp_path))
        first = pids(tmp_path)
        until(lambda: not any(map(is_alive, first)), 5, "the idle server ended, with its child")
        assert run(tools["echo"]) == "said"


def test_close_ends_a_deaf_family(tmp_path: Path) -> None:
    stage = Stage()
    stage.tools(odd("family", tmp_path))
    stage.servers.close()
    assert not any(map(is_alive, pids(tmp_path)))


def test_after_close_a_call_fails_and_tools_can_still_be_asked_for(tmp_path: Path) -> None:
    stage = Stage()
    tools = stage.tools(odd("well"))
    stage.servers.close()
    with pytest.raises(ToolFailed, match="this worker is stopping"):
        run(tools["echo"])
    assert "this worker is stopping" in stage.problem(odd("bad tools"))


def test_a_worker_killed_with_signal_9_takes_its_servers_and_their_children_with_it(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "tests.support.mcp_servers.worker", str(tmp_path))
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, env=dict(os.environ)) as worker:
        assert worker.stdout is not None
        try:
            assert worker.stdout.readline() == b"up\n"
        finally:
            worker.send_signal(signal.SIGKILL)
    until(lambda: not any(map(is_alive, pids(tmp_path))), 5, "the server and its child ended")
