"""Processes that compare what they have accepted; each is a client of its own on a real Redis."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import redis

from loom_worker.agents.known import KnownAgents
from loom_worker.agents.load import LiveAgents
from loom_worker.core import redis_client
from loom_worker.core.live_files import SETTLE_S
from loom_worker.core.settings_tree import PatternSettings, Settings
from loom_worker.core.values.agents import ContentChange
from loom_worker.patterns.live import LiveLibrary
from loom_worker.runtime.content_versions import APART_S, KEY, ContentVersions
from loom_worker.store.database import Database
from loom_worker.tools.custom import ToolFiles
from loom_worker.workflows.load import LiveWorkflows
from tests.support.callers import CALLER
from tests.support.clock import Clock
from tests.support.registry import made_components
from tests.support.valkey import Valkey

NOW_S = 1_800_000_000.0


@dataclass
class Source:
    """What several processes read, such as a file on a share."""

    text: str = "one"


@dataclass
class Held:
    """A part as one process has it."""

    source: Source
    text: str | None = None
    reads: int = 0
    on_read: Callable[[], None] = field(default=lambda: None)

    def digest(self) -> str | None:
        return self.text

    def renew(self) -> None:
        self.reads += 1
        self.text = self.source.text
        self.on_read()


class Process:
    """One process with one part."""

    def __init__(self, client: redis.Redis, name: str, source: Source) -> None:
        self.now_s = 0.0
        self.content = ContentVersions(client, process=name, clock=lambda: self.now_s)
        self.part = Held(source, source.text)
        self.content.follow("part", self.part)

    def accept(self) -> None:
        """Read the source, and tell of it."""
        self.part.text = self.part.source.text
        self.content.accepted("part")

    def has(self) -> str | None:
        """What it has once it has caught up."""
        self.content.catch_up()
        return self.part.text


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def two(valkey: redis.Redis, source: Source) -> tuple[Process, Process]:
    one, other = Process(valkey, "p1", source), Process(valkey, "p2", source)
    assert (one.has(), other.has()) == ("one", "one")
    return one, other


def test_what_one_process_has_accepted_every_other_has_at_its_next_turn(
    two: tuple[Process, Process], source: Source
) -> None:
    one, other = two
    source.text = "two"
    assert other.has() == "one"  # nobody has accepted it so far
    one.accept()
    assert (other.has(), other.part.reads) == ("two", 1)
    assert (other.has(), other.part.reads, one.has(), one.part.reads) == ("two", 1, "two", 0)


def test_a_process_that_read_long_ago_tells_nothing_over_what_was_read_later(
    two: tuple[Process, Process], source: Source, valkey: redis.Redis
) -> None:
    """Also if what is newest reads as what the slow process last compared itself with."""
    one, other = two
    for newest in ("three", "one"):
        source.text = "two"
        other.part.text = "two"  # read, and not told yet
        for text in ("two", newest):
            source.text = text
            one.accept()
        other.content.accepted("part")
        assert other.part.text == newest
        assert str(valkey.hget(KEY, "part")).startswith(f"{newest} p1 ")
        assert one.has() == newest


def test_processes_that_read_different_files_say_so_once_and_go_on(
    two: tuple[Process, Process], source: Source, valkey: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = two
    other.part.source = Source("old")
    other.part.text = "old"
    other.content.accepted("part")
    source.text = "two"
    one.accept()
    told = valkey.hget(KEY, "part")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert (one.has(), other.has()) == ("two", "old")
    assert valkey.hget(KEY, "part") == told
    (line,) = [record.getMessage() for record in caplog.records if "p1 uses another version" in record.getMessage()]
    assert "do all machines have the same files?" in line


def test_a_source_that_cannot_be_reached_leaves_a_process_with_what_it_has(
    two: tuple[Process, Process], source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    def unmounted() -> None:
        other.part.text = "one"
        raise OSError("Stale file handle")

    one, other = two
    other.part.on_read = unmounted
    source.text = "two"
    one.accept()
    assert [other.has(), other.has()] == ["one", "one"]
    assert caplog.text.count("the version of process p1 cannot be read: Stale file handle") == 1
    other.part.on_read = lambda: None
    other.now_s += APART_S
    assert other.has() == "two"


def test_a_redis_that_lost_its_memory_is_told_again(
    two: tuple[Process, Process], source: Source, valkey: redis.Redis
) -> None:
    one, other = two
    valkey.flushall()
    assert one.has() == "one"
    assert str(valkey.hget(KEY, "part")).startswith("one p1 ")
    source.text = "two"
    one.accept()
    assert other.has() == "two"


def test_a_process_that_has_nothing_yet_tells_nothing_and_reads_nothing(valkey: redis.Redis, source: Source) -> None:
    process = Process(valkey, "p1", source)
    process.part.text = None
    assert (process.has(), valkey.exists(KEY)) == (None, 0)
    Process(valkey, "p2", source).accept()
    process.part.text = "one"
    assert (process.has(), process.part.reads) == ("one", 0)


def test_a_part_that_tells_of_a_reading_which_was_asked_for_is_not_asked_again(
    two: tuple[Process, Process], source: Source
) -> None:
    one, other = two
    other.part.on_read = lambda: other.content.accepted("part")
    source.text = "two"
    one.accept()
    assert (other.has(), other.part.reads) == ("two", 1)


def test_without_redis_a_process_goes_on_with_what_it_has_and_says_so_once(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    away = redis_client.client("redis://127.0.0.1:1/0", connections=1)
    process = Process(away, "p1", source)
    for _ in range(3):
        assert process.has() == "one"
        process.accept()
    assert len([record for record in caplog.records if "is not known" in record.getMessage()]) == 1


def write(path: Path, text: str, moment_s: float) -> None:
    path.write_text(text, encoding="utf-8")
    os.utime(path, (moment_s, moment_s))


def test_an_agents_file_that_one_process_has_taken_up_acts_in_all_from_the_next_turn_on(
    valkey: redis.Redis, tmp_path: Path
) -> None:
    path, text = tmp_path / "a.yaml", "agent: {{name: a, system_prompt: {}}}\n"
    write(path, text.format("one"), NOW_S - 60)
    clocks = Clock(), Clock()
    live = [LiveAgents(tmp_path, clock=each) for each in clocks]
    contents = [ContentVersions(valkey, process=f"p{n}") for n in range(2)]
    for agents, content in zip(live, contents, strict=True):
        agents.share(content)
        content.catch_up()
    write(path, text.format("two"), NOW_S)
    clocks[0].now_s += SETTLE_S + 1
    assert live[0].current().agents["a"].system_prompt == "two"
    assert live[1].current().agents["a"].system_prompt == "one"  # it looks once a second, and its second is not over
    contents[1].catch_up()
    assert live[1].current().agents["a"].system_prompt == "two"
    assert live[0].digest() == live[1].digest()


def test_agents_are_the_same_wherever_their_folder_lies(tmp_path: Path) -> None:
    text = "agent:\n  name: a\n  tools: {builtin: [execute_sql, list_patterns]}\n  memory: {l1_ratio: 0.5}\n"
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    write(tmp_path / "here" / "a.yaml", text, NOW_S)
    write(tmp_path / "there" / "b.yaml", f"# moved\n{text}", NOW_S)
    here, there = LiveAgents(tmp_path / "here"), LiveAgents(tmp_path / "there")
    assert here.digest() == there.digest() != LiveAgents(None).digest()


def test_an_agent_that_a_workflow_defines_acts_in_all_from_the_next_turn_on(
    valkey: redis.Redis, tmp_path: Path
) -> None:
    path = tmp_path / "flow.yaml"
    text = """
apiVersion: loom/v1
kind: Workflow
metadata: {{name: flow}}
spec:
  type: pipeline
  initial_prompt: "Begin."
  stages: [{{agent_id: writer, prompt_template: "Write."}}]
  agents: [{{id: writer, system_prompt: {}}}]
"""
    write(path, text.format("one"), NOW_S - 60)
    clocks = Clock(), Clock()
    live = [KnownAgents(LiveAgents(None), LiveWorkflows(tmp_path, clock=each)) for each in clocks]
    contents = [ContentVersions(valkey, process=f"p{n}") for n in range(2)]
    for agents, content in zip(live, contents, strict=True):
        agents.share(content)
        content.catch_up()

    def prompt(agents: KnownAgents) -> str | None:
        found = agents.find("flow:writer")
        assert found is not None
        return found.system_prompt

    write(path, text.format("two"), NOW_S)
    clocks[0].now_s += SETTLE_S + 1
    assert [prompt(agents) for agents in live] == ["two", "one"]
    contents[1].catch_up()
    assert prompt(live[1]) == "two"


def test_patterns_that_one_process_has_loaded_are_in_all_from_the_next_turn_on(
    valkey: redis.Redis, tmp_path: Path
) -> None:
    pattern = "patterns:\n- {{id: {0}, name: {0}, description: What to do with {0}., template: SELECT 1}}\n"
    (tmp_path / "sql").mkdir()
    write(tmp_path / "sql" / "one.yaml", pattern.format("one"), NOW_S)
    contents = [ContentVersions(valkey, process=f"p{n}") for n in range(2)]
    libraries = []

    for content in contents:
        library = LiveLibrary(tmp_path)
        library.share(content)
        libraries.append(library)
        library.current()
    write(tmp_path / "sql" / "two.yaml", pattern.format("two"), NOW_S)
    libraries[0].reload()
    assert [len(each.ids()) for each in libraries] == [2, 1]
    contents[1].catch_up()
    assert libraries[1].ids() == libraries[0].ids()


def test_a_tools_file_that_one_process_has_taken_up_acts_in_all_from_the_next_turn_on(
    valkey: redis.Redis, tmp_path: Path
) -> None:
    """Though the clock of the other machine lags, and the file seems too young there."""
    text = 'from loom_worker.tools.declare import tool\n@tool\ndef say() -> str:\n    """Say."""\n    return "{}"\n'
    write(tmp_path / "say.py", text.format("one"), NOW_S - 60)
    clocks = Clock(), Clock()
    contents = [ContentVersions(valkey, process=f"p{n}") for n in range(2)]
    files = [ToolFiles(clock, content) for clock, content in zip(clocks, contents, strict=True)]

    def said(each: ToolFiles) -> object:
        each.stamp(["say.py"], tmp_path)
        (tool,) = each.tools("say.py", tmp_path)
        return tool.run({}, CALLER)

    assert [said(each) for each in files] == ["one", "one"]
    write(tmp_path / "say.py", text.format("two"), NOW_S)
    clocks[0].now_s += SETTLE_S
    assert [said(each) for each in files] == ["two", "one"]
    contents[1].catch_up()
    assert said(files[1]) == "two"


def test_all_that_a_worker_puts_agents_together_from_is_compared(
    settings: Settings, database: Database, valkey_server: Valkey, valkey: redis.Redis, tmp_path: Path
) -> None:
    folder, library, flows = tmp_path / "agents", tmp_path / "patterns", tmp_path / "workflows"
    for place in (folder, library, flows):
        place.mkdir()
    write(folder / "a.yaml", "agent: {name: a, backend: false, tools: [say.py]}\n", NOW_S)
    text = 'from loom_worker.tools.declare import tool\n@tool\ndef say() -> str:\n    """Say."""\n    return "one"\n'
    write(folder / "say.py", text, NOW_S)
    here = replace(settings, redis_url=valkey_server.url, patterns=PatternSettings(library), agents_dir=folder)
    fitted = made_components(here, KnownAgents(LiveAgents(folder), LiveWorkflows(flows)), database)
    assert fitted.registry.runtime("a").tool("say") is not None
    fitted.knowledge.library.current()
    fitted.content.catch_up()
    names = {name.partition(":")[0] for name in valkey.hkeys(KEY)}
    assert names == {"agents", "patterns", "tools", "workflows"}
    fitted.close()


def test_an_edit_is_told_by_the_first_process_that_notices_it(
    valkey: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "loom_worker.runtime.content_versions")
    processes = [Process(valkey, name, Source()) for name in ("a", "b", "c")]
    edit = ContentChange("tool", "/tools/dice.py", "updated", "20:1", "0a1b", "9f8e")
    refused = ContentChange("workflow", "/flows/a.yaml:3", "refused", "30:2", "a mapping is needed")
    again = replace(edit, stamp="20:3")
    for change in (edit, refused, again):
        for process in processes:
            process.content.tell(change)
    assert [(line.levelname, line.getMessage()) for line in caplog.records] == [
        ("INFO", "tool.updated: /tools/dice.py"),
        ("WARNING", "workflow.refused: /flows/a.yaml:3: a mapping is needed"),
        ("INFO", "tool.updated: /tools/dice.py"),
    ]
    assert (vars(caplog.records[0])["version"], vars(caplog.records[0])["former"]) == ("0a1b", "9f8e")
