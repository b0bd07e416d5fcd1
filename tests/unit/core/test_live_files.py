"""What files of agents and files of workflows have in common while a process runs."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from loom_worker.agents.load import LiveAgents
from loom_worker.core.live_files import LOOK_S, SETTLE_S
from loom_worker.core.values.agents import Content, ContentChange, Part
from loom_worker.workflows.load import LiveWorkflows
from tests.support.clock import Clock
from tests.unit.workflows.files import document


@dataclass
class Files:
    """Files in a folder, written as of the clock's time, and those who read them."""

    folder: Path
    clock: Clock
    make: Callable[..., Any]
    document: Callable[[str, str, str], str]
    current: Callable[..., Mapping[str, Any]]
    told: Callable[[Any], str]
    kind: str
    bad: str

    def write(self, name: str, word: str, file: str = "one.yaml", tail: str = "") -> None:
        path = self.folder / file
        path.write_text(self.document(name, word, tail), encoding="utf-8")
        os.utime(path, (self.clock.now_s, self.clock.now_s))

    def live(self) -> Any:
        return self.make(self.folder, clock=self.clock)

    def words(self, live: Any) -> dict[str, str]:
        """What stands in the files, by name; without what is packaged."""
        found = self.current(live).items()
        return {name: self.told(each) for name, each in found if "loom_worker" not in each.file}


def agent(name: str, prompt: str, tail: str) -> str:
    return f"agent: {{name: {name}, system_prompt: {prompt}}}{tail}\n"


def workflow(name: str, topic: str, tail: str) -> str:
    return document(f"{{type: debate, topic: {topic}, agent_ids: [a]}}", name, tail)


AGENTS = (
    *(LiveAgents, agent, lambda live, *name: live.current(*name).agents, lambda each: each.system_prompt),
    *("agent", "agent: {name: a, config: {max_turns: many}}"),
)
WORKFLOWS = (
    *(LiveWorkflows, workflow, lambda live, *name: live.current(*name).workflows, lambda each: each.spec["topic"]),
    *("workflow", document("{type: debate}", "a")),
)


@pytest.fixture(params=[AGENTS, WORKFLOWS], ids=["agents", "workflows"])
def files(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Files:
    return Files(tmp_path, clock, *request.param)


def test_a_changed_file_is_taken_up_once_it_has_settled(files: Files, clock: Clock) -> None:
    files.write("a", "one")
    live = files.live()
    clock.now_s += 10
    files.write("a", "two")
    assert files.words(live) == {"a": "one"}
    clock.now_s += SETTLE_S + LOOK_S
    assert files.words(live) == {"a": "two"}


def test_an_edit_acts_as_soon_as_it_has_settled_whenever_it_was_looked_at_before(files: Files, clock: Clock) -> None:
    files.write("a", "one")
    clock.now_s += 10
    live = files.live()
    clock.now_s += LOOK_S
    files.write("a", "two")
    clock.now_s += SETTLE_S - 0.05
    assert files.words(live) == {"a": "one"}
    clock.now_s += 0.15
    assert files.words(live) == {"a": "two"}


def test_a_second_edit_within_a_tick_of_the_file_systems_clock_is_taken_up_too(files: Files, clock: Clock) -> None:
    files.write("a", "one")
    live = files.live()
    files.write("a", "two")
    clock.now_s += SETTLE_S + LOOK_S
    assert files.words(live) == {"a": "two"}


@pytest.mark.parametrize("back_s", [SETTLE_S / 2, None])
def test_a_file_that_is_away_for_a_moment_is_there_all_the_same(
    files: Files, clock: Clock, back_s: float | None
) -> None:
    """As while version control or an editor replaces it in two steps."""
    files.write("a", "one")
    clock.now_s += 10
    live = files.live()
    clock.now_s += LOOK_S
    (files.folder / "one.yaml").unlink()
    os.utime(files.folder, (clock.now_s, clock.now_s))
    assert files.words(live) == {"a": "one"}
    if back_s is not None:
        clock.now_s += back_s
        files.write("a", "two")
        assert files.words(live) == {"a": "one"}
    clock.now_s += SETTLE_S
    assert files.words(live) == ({} if back_s is None else {"a": "two"})


def test_files_are_looked_at_now_and_then_only(files: Files, clock: Clock) -> None:
    live = files.live()
    clock.now_s -= 60
    files.write("a", "one")
    clock.now_s += 60 + LOOK_S / 2
    assert files.words(live) == {}
    clock.now_s += LOOK_S / 2
    assert files.words(live) == {"a": "one"}


def test_what_is_not_known_is_looked_for_at_once(files: Files, clock: Clock) -> None:
    live = files.live()
    clock.now_s -= 60
    files.write("a", "one")
    clock.now_s += 60
    assert "a" not in files.current(live)
    assert "a" in files.current(live, "a")


@pytest.mark.parametrize("tail", ["}", "\n---\n{bad}", "\n--- ["])
def test_a_fault_in_a_changed_file_leaves_what_is_in_it_as_it_was(
    files: Files, clock: Clock, tail: str, caplog: pytest.LogCaptureFixture
) -> None:
    files.write("a", "one")
    files.write("b", "other", "two.yaml")
    files.write("c", "same", "three.yaml")
    live = files.live()
    before = files.current(live)["c"]
    files.write("a", "two", tail=tail.replace("{bad}", files.bad))
    files.write("b", "changed", "two.yaml")
    clock.now_s += 10
    with caplog.at_level(logging.WARNING):
        assert files.words(live) == {"a": "one", "b": "changed", "c": "same"}
    assert files.current(live)["c"] is before
    assert live.current().fault("a") == ""
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{files.kind} file: {files.folder}/one.yaml")
    files.write("a", "three")
    clock.now_s += 10
    assert files.words(live) == {"a": "three", "b": "changed", "c": "same"}


def test_a_packaged_agent_is_there_without_a_folder_and_again_once_its_namesake_is_gone(
    tmp_path: Path, clock: Clock
) -> None:
    assert set(LiveAgents(None, clock=clock).current().agents) == {"default"}
    files = Files(tmp_path, clock, *AGENTS)
    agents = files.live()
    packaged = agents.current().agents["default"]
    files.write("default", "mine")
    clock.now_s += 10
    assert files.words(agents) == {"default": "mine"}
    (tmp_path / "one.yaml").unlink()
    clock.now_s += 10
    assert files.words(agents) == {}
    assert agents.current().agents["default"] == packaged


class Told(Content):
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


def test_other_processes_are_told_of_a_change_and_can_ask_for_the_files_to_be_read(files: Files, clock: Clock) -> None:
    files.write("a", "one")
    clock.now_s += 10
    content, live = Told(), files.live()
    live.share(content)
    digest = live.digest()
    files.write("a", "two")
    content.parts[f"{files.kind}s"].renew()
    assert live.digest() != digest
    assert content.accepted_parts == []
    files.write("a", "three")
    clock.now_s += 10
    assert files.words(live) == {"a": "three"}
    assert content.accepted_parts == [f"{files.kind}s"]


def test_the_digest_is_of_what_is_said_and_not_of_where(files: Files, tmp_path: Path) -> None:
    files.write("a", "'{{x}}'")
    first, text = files.live(), (tmp_path / "one.yaml").read_text(encoding="utf-8")
    elsewhere = replace(files, folder=tmp_path / "other")
    elsewhere.folder.mkdir()
    (elsewhere.folder / "moved.yml").write_text(f"# a comment\n\n{text}", encoding="utf-8")
    assert elsewhere.live().digest() == first.digest()
    (elsewhere.folder / "moved.yml").write_text(text.replace("{{x}}", "{{y}}"), encoding="utf-8")
    assert elsewhere.live().digest() != first.digest()


def test_each_edit_is_told_with_what_changed_and_each_error_with_its_place(files: Files, clock: Clock) -> None:
    files.write("a", "one")
    files.write("b", "one", file="two.yaml")
    live, content = files.live(), Told()
    live.share(content)
    for word, tail in (("two", ""), ("two", "\n--- ["), ("three", "")):
        clock.now_s += 10
        files.write("a", word, tail=tail)
        clock.now_s += SETTLE_S + LOOK_S
        files.current(live)
    (refused,) = [each for each in content.changes if each.outcome == "refused"]
    assert refused.kind == files.kind
    assert refused.name.startswith(f"{files.folder / 'one.yaml'}:")
    assert len({each.stamp for each in content.changes}) == len(content.changes)
    if files.kind == "workflow":  # that an agent has changed is told by who stores its versions
        edited, _, mended = content.changes
        assert (edited.kind, edited.name, edited.outcome, len(edited.version)) == ("workflow", "a", "updated", 12)
        assert (mended.name, mended.former) == ("a", edited.version)
