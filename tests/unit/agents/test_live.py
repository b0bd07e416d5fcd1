import os
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_worker.agents.live import LiveAgents
from tests.support.clock import Clock


@pytest.fixture
def write(tmp_path: Path, clock: Clock) -> Callable[..., Path]:
    """Write an agent's file as of the clock's time."""

    def write(name: str, prompt: str, file: str = "one.yaml", tail: str = "") -> Path:
        path = tmp_path / file
        path.write_text(f"agent: {{name: {name}, system_prompt: {prompt}}}{tail}\n", encoding="utf-8")
        os.utime(path, (clock.now_s, clock.now_s))
        return path

    return write


def live(folder: Path | None, clock: Clock) -> LiveAgents:
    return LiveAgents(folder, clock=clock)


def prompts(agents: LiveAgents) -> dict[str, str]:
    """The agents beside the packaged one."""
    found = agents.current().agents
    return {name: agent.system_prompt for name, agent in found.items() if "loom_worker" not in agent.source}


def test_an_agent_comes_and_goes_with_its_file(tmp_path: Path, clock: Clock, write: Callable[..., Path]) -> None:
    agents = live(tmp_path, clock)
    path = write("default", "mine")
    clock.now_s += 10
    assert prompts(agents) == {"default": "mine"}
    path.unlink()
    clock.now_s += 10
    assert prompts(agents) == {}
    assert "default" in agents.current().agents


def test_an_agent_whose_file_did_not_change_stays_the_same_object(
    tmp_path: Path, clock: Clock, write: Callable[..., Path]
) -> None:
    write("a", "one")
    agents = live(tmp_path, clock)
    before = agents.current().agents
    write("b", "new", "two.yaml")
    clock.now_s += 10
    after = agents.current().agents
    assert after["a"] is before["a"]
    assert after["default"] is before["default"]
    assert "b" in after


def test_without_a_folder_there_is_the_packaged_agent(clock: Clock) -> None:
    agents = live(None, clock)
    clock.now_s += 10
    assert set(agents.current().agents) == {"default"}
