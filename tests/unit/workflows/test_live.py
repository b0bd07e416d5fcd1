import os
from collections.abc import Callable
from pathlib import Path

import pytest

import loom_worker.demo.workflows
from loom_worker.core.live_files import LOOK_S, SETTLE_S
from loom_worker.core.values.agents import ContentChange, Part
from loom_worker.workflows.live import LiveWorkflows
from loom_worker.workflows.load import load
from tests.support.clock import Clock
from tests.unit.workflows.files import document


class Told:
    """What other processes are told."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.accepted_parts: list[str] = []
        self.changes: list[ContentChange] = []

    def follow(self, name: str, part: Part) -> None:
        self.parts[name] = part

    def accepted(self, name: str) -> None:
        self.accepted_parts.append(name)

    def tell(self, change: ContentChange) -> None:
        self.changes.append(change)

    def catch_up(self, version: str = "") -> None:
        raise AssertionError("nobody asks")


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
        text = f"{{type: debate, topic: x, agents: [{', '.join(f'{{id: {each}, tools: []}}' for each in ids)}]}}"
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


def test_other_processes_are_told_of_a_change_and_can_ask_for_the_files_to_be_read(
    tmp_path: Path, clock: Clock, write: Callable[..., Path]
) -> None:
    write("w", "one")
    clock.now_s += 10
    content, workflows = Told(), live(tmp_path, clock)
    workflows.share(content)
    digest = workflows.digest()
    write("w", "two")
    content.parts["workflows"].renew()
    assert workflows.digest() != digest
    assert content.accepted_parts == []
    write("w", "three")
    clock.now_s += 10
    assert topics(workflows) == {"w": "three"}
    assert content.accepted_parts == ["workflows"]


def test_the_digest_is_of_what_is_said_and_not_of_where(
    tmp_path: Path, clock: Clock, write: Callable[..., Path]
) -> None:
    path = write("w", "'{{x}}'")
    first = live(tmp_path, clock)
    text = path.read_text(encoding="utf-8")
    other = tmp_path / "other"
    other.mkdir()
    (other / "moved.yml").write_text(f"# a comment\n\n{text}", encoding="utf-8")
    assert live(other, clock).digest() == first.digest()
    (other / "moved.yml").write_text(text.replace("{{x}}", "{{y}}"), encoding="utf-8")
    assert live(other, clock).digest() != first.digest()


def test_each_edit_is_told_with_what_changed_and_each_error_with_its_place(
    tmp_path: Path, clock: Clock, write: Callable[..., Path]
) -> None:
    path = write("a", "one")
    write("b", "one", file="two.yaml")
    workflows, content = live(tmp_path, clock), Told()
    workflows.share(content)
    for topic, tail in (("two", ""), ("two", "\n--- ["), ("three", "")):
        clock.now_s += 10
        write("a", topic, tail=tail)
        clock.now_s += SETTLE_S + LOOK_S
        workflows.current()
    edited, refused, mended = content.changes
    assert (edited.kind, edited.name, edited.outcome, len(edited.version)) == ("workflow", "a", "updated", 12)
    assert (refused.kind, refused.outcome) == ("workflow", "refused")
    assert refused.name.startswith(f"{path}:")
    assert (mended.name, mended.former) == ("a", edited.version)
    assert len({each.stamp for each in content.changes}) == 3
