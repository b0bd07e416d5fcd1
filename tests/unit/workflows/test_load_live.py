import os
from collections.abc import Callable
from pathlib import Path

import pytest

import loom_worker.demo.workflows
from loom_worker.workflows.load import LiveWorkflows, load
from tests.support.clock import Clock
from tests.unit.workflows.files import document


@pytest.fixture
def write(tmp_path: Path, clock: Clock) -> Callable[..., Path]:
    """Write a workflow's file as of the clock's time."""

    def write(name: str, topic: str, file: str = "one.yaml", tail: str = "") -> Path:
        path = tmp_path / file
        text = document(f"{{type: debate, topic: {topic}, agent_ids: [a]}}", name, tail)
        path.write_text(text, encoding="utf-8")
        os.utime(path, (clock.now_s, clock.now_s))
        return path

    return write


def live(folder: Path | None, clock: Clock) -> LiveWorkflows:
    return LiveWorkflows(folder, clock=clock)


def topics(workflows: LiveWorkflows) -> dict[str, str]:
    return {name: str(each.spec["topic"]) for name, each in workflows.current().workflows.items()}


def test_without_a_folder_there_are_none(clock: Clock) -> None:
    assert topics(live(None, clock)) == {}


def test_a_folder_without_files_hides_nothing_of_the_package_until_one_is_there(
    write: Callable[..., Path], tmp_path: Path, clock: Clock
) -> None:
    shipped = Path(loom_worker.demo.workflows.__file__).parent
    found = LiveWorkflows(tmp_path, shipped=shipped, clock=clock)
    assert set(found.current().workflows) == set(load(shipped).workflows) != set()
    write("own", "ships")
    clock.now_s += 10
    assert set(found.current("own").workflows) == {"own"}


def test_the_agents_of_all_files_are_known_and_a_new_one_is_looked_for_at_once(tmp_path: Path, clock: Clock) -> None:
    def write(name: str, ids: str) -> None:
        agents = ", ".join(f"{{id: {each}, tools: []}}" for each in ids)
        text = f"{{type: debate, topic: x, agent_ids: [{', '.join(ids)}], agents: [{agents}]}}"
        path = tmp_path / f"{name}.yaml"
        path.write_text(document(text, name), encoding="utf-8")
        os.utime(path, (clock.now_s - 60, clock.now_s - 60))

    write("v", "a")
    write("w", "a")
    workflows = live(tmp_path, clock)
    assert set(workflows.agents("v:a")) == {"v:a", "w:a"}
    write("w", "ab")
    assert set(workflows.agents("v:a")) == {"v:a", "w:a"}
    assert set(workflows.agents("w:b")) == {"v:a", "w:a", "w:b"}
