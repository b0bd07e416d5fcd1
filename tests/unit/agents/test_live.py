import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_worker.agents.live import LOOK_S, SETTLE_S, LiveAgents
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
    return LiveAgents(folder, clock=clock, wall_clock=clock)


def prompts(agents: LiveAgents) -> dict[str, str]:
    """The agents beside the packaged one."""
    found = agents.current().agents
    return {name: agent.system_prompt for name, agent in found.items() if "loom_worker" not in agent.source}


def test_a_changed_file_is_taken_up_once_it_has_settled(
    tmp_path: Path, clock: Clock, write: Callable[..., Path]
) -> None:
    write("a", "one")
    agents = live(tmp_path, clock)
    clock.now_s += 10
    write("a", "two")
    assert prompts(agents) == {"a": "one"}
    clock.now_s += SETTLE_S + LOOK_S
    assert prompts(agents) == {"a": "two"}


def test_files_are_looked_at_now_and_then_only(tmp_path: Path, clock: Clock, write: Callable[..., Path]) -> None:
    agents = live(tmp_path, clock)
    clock.now_s -= 60
    write("a", "one")
    clock.now_s += 60 + LOOK_S / 2
    assert prompts(agents) == {}
    clock.now_s += LOOK_S / 2
    assert prompts(agents) == {"a": "one"}


def test_an_agent_that_is_not_known_is_looked_for_at_once(
    tmp_path: Path, clock: Clock, write: Callable[..., Path]
) -> None:
    agents = live(tmp_path, clock)
    clock.now_s -= 60
    write("a", "one")
    clock.now_s += 60
    assert "a" not in agents.current("default").agents
    assert "a" in agents.current("a").agents


def test_an_agent_comes_and_goes_with_its_file(tmp_path: Path, clock: Clock, write: Callable[..., Path]) -> None:
    agents = live(tmp_path, clock)
    path = write("default", "mine")
    clock.now_s += 10
    assert prompts(agents) == {"default": "mine"}
    path.unlink()
    clock.now_s += 10
    assert prompts(agents) == {}
    assert "default" in agents.current().agents


@pytest.mark.parametrize("tail", ["}", "\n---\nagent: {name: a, config: {max_turns: many}}", "\n--- ["])
def test_a_fault_in_a_changed_file_leaves_its_agents_as_they_were(
    tmp_path: Path, clock: Clock, write: Callable[..., Path], tail: str, caplog: pytest.LogCaptureFixture
) -> None:
    write("a", "one")
    write("b", "other", "two.yaml")
    agents = live(tmp_path, clock)
    write("a", "two", tail=tail)
    write("b", "changed", "two.yaml")
    clock.now_s += 10
    with caplog.at_level(logging.WARNING):
        assert prompts(agents) == {"a": "one", "b": "changed"}
    assert agents.current().fault("a") == ""
    assert [str(tmp_path / "one.yaml") in record.getMessage() for record in caplog.records] == [True]
    write("a", "three")
    clock.now_s += 10
    assert prompts(agents) == {"a": "three", "b": "changed"}


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
