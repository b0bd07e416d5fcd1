"""Files of tools whose edits act while a process runs; the clock is the test's own."""

import importlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from loom_worker.core.errors import BadFile
from loom_worker.core.live_files import SETTLE_S
from loom_worker.core.values.agents import Content, ContentChange
from loom_worker.tools.custom import LoadedTools, ToolFiles, installed, load
from tests.support.callers import CALLER
from tests.support.clock import Clock

TOOL = '''
from loom_worker.tools.declare import tool

@tool{options}
def {name}(n: int = 0) -> int:
    """Act."""
    return n
'''


def write_tool(folder: Path, file: str, name: str, options: str = "") -> None:
    (folder / file).write_text(TOOL.format(name=name, options=options))


def names(found: LoadedTools) -> list[str]:
    return [each.spec.name for each in found.tools]


def test_a_bad_file_costs_its_own_tools_alone(tmp_path: Path) -> None:
    write_tool(tmp_path, "good.py", "good")
    write_tool(tmp_path, "better.py", "better")
    (tmp_path / "bad.py").write_text("1 / 0\n")
    write_tool(tmp_path, "odd.py", "odd", "(schema={'type': 'object', 'properties': {'n': {'type': 'text'}}})")
    found = load(["bad.py", "good.py", "none.py", "odd.py", "better.py"], tmp_path)
    assert names(found) == ["good", "better"]
    bad, none, odd = found.problems
    assert "bad.py:1: ZeroDivisionError" in bad
    assert "no such file" in none
    assert odd.startswith("odd.py: tool 'odd': invalid input schema at /properties/n/type")


def test_a_name_that_is_taken_costs_the_second_of_the_two(tmp_path: Path) -> None:
    write_tool(tmp_path, "one.py", "same")
    (tmp_path / "two.py").write_text(
        TOOL.format(name="same", options="")
        + TOOL.format(name="own", options="")
        + TOOL.format(name="x", options="(name='own')")
    )
    found = load(["one.py", "two.py"], tmp_path, taken=["execute_sql"])
    assert names(found) == ["same", "own"]
    assert found.problems == (
        "two.py: a tool is named 'same' already; give this one another name=",
        "two.py: a tool is named 'own' already; give this one another name=",
    )
    assert names(load(["one.py"], tmp_path, taken=["same"])) == []


def test_nothing_wanted_is_nothing_found(tmp_path: Path) -> None:
    assert load([], tmp_path) == LoadedTools()


def test_installed_packages_give_tools_by_their_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tool(tmp_path, "acme_tools_a.py", "alpha")
    write_tool(tmp_path, "acme_tools_b.py", "beta")
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[loom.tools]\nmodule = acme_tools_a\nfunction = acme_tools_b:beta\nbroken = acme_tools_c\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    found = installed()
    assert names(found) == ["beta", "alpha"]
    assert found.problems == ("acme_tools_c: no such tool or module: No module named 'acme_tools_c'",)
    assert [each.origin and each.origin["target"] for each in found.tools] == ["acme_tools_b:beta", "acme_tools_a"]


TEXT = '''from loom_worker.tools.declare import tool

@tool
def greet() -> str:
    """Greet."""
    return "{word}"
'''
Write = Callable[[str], Path]


@pytest.fixture
def files(clock: Clock) -> ToolFiles:
    return ToolFiles(clock)


@pytest.fixture
def write(tmp_path: Path, clock: Clock) -> Write:
    """Write the file as of the clock's time."""

    def write(text: str) -> Path:
        path = tmp_path / "greet.py"
        path.write_text(text)
        os.utime(path, (clock.now_s, clock.now_s))
        return path

    return write


def said(files: ToolFiles, folder: Path) -> object:
    """What the tool says as a worker knows it after a look, as it has one before each turn."""
    files.stamp(["greet.py"], folder)
    (tool,) = files.tools("greet.py", folder)
    return tool.run({}, CALLER)


def test_an_edit_is_taken_up_once_it_has_settled(files: ToolFiles, write: Write, clock: Clock, tmp_path: Path) -> None:
    write(TEXT.format(word="Hello"))
    clock.now_s += 10
    assert said(files, tmp_path) == "Hello"
    before = files.stamp(["greet.py"], tmp_path)
    write(TEXT.format(word="Hi"))
    assert (said(files, tmp_path), files.stamp(["greet.py"], tmp_path)) == ("Hello", before)
    clock.now_s += SETTLE_S
    assert said(files, tmp_path) == "Hi"
    assert files.stamp(["greet.py"], tmp_path) != before
    (tool,) = files.tools("greet.py", tmp_path)
    assert tool.origin is not None
    assert '"Hi"' in tool.origin["source"]


def test_a_broken_edit_leaves_the_former_version_and_is_told_once_with_file_and_line(
    files: ToolFiles, write: Write, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(TEXT.format(word="Hello"))
    said(files, tmp_path)
    path = write("import os\n1 / 0\n")
    clock.now_s += SETTLE_S
    for _ in range(3):
        assert said(files, tmp_path) == "Hello"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"tool file: {path}:2: ZeroDivisionError: division by zero; the former version stays in use"
    write(TEXT.format(word="Mended"))
    clock.now_s += SETTLE_S
    assert said(files, tmp_path) == "Mended"


def test_an_edit_and_a_refused_one_are_told_of_once(write: Write, clock: Clock, tmp_path: Path) -> None:
    class Told(Content):
        def __init__(self) -> None:
            self.changes: list[ContentChange] = []

        def tell(self, change: ContentChange) -> None:
            self.changes.append(change)

    content = Told()
    files = ToolFiles(clock, content)
    write(TEXT.format(word="Hello"))
    said(files, tmp_path)
    for text in ("1 / 0\n", TEXT.format(word="Hi")):
        path = write(text)
        clock.now_s += SETTLE_S
        said(files, tmp_path)
        said(files, tmp_path)
    refused, updated = content.changes
    assert (refused.kind, refused.name, refused.outcome) == ("tool", str(path), "refused")
    assert refused.version.startswith(f"{path}:1: ZeroDivisionError")
    assert (updated.outcome, len(updated.version), len(updated.former)) == ("updated", 12, 12)
    assert updated.version != updated.former


def test_a_second_edit_within_a_tick_of_the_file_systems_clock_is_taken_up_too(
    files: ToolFiles, write: Write, clock: Clock, tmp_path: Path
) -> None:
    write(TEXT.format(word="Old"))
    assert said(files, tmp_path) == "Old"
    write(TEXT.format(word="New"))
    clock.now_s += SETTLE_S
    assert said(files, tmp_path) == "New"


def test_a_file_that_is_away_for_a_moment_keeps_its_tools_and_one_that_is_gone_loses_them(
    files: ToolFiles, write: Write, clock: Clock, tmp_path: Path
) -> None:
    path = write(TEXT.format(word="Hello"))
    assert said(files, tmp_path) == "Hello"
    path.unlink()
    os.utime(tmp_path, (clock.now_s, clock.now_s))
    assert said(files, tmp_path) == "Hello"
    clock.now_s += SETTLE_S
    with pytest.raises(BadFile, match="no such file of tools"):
        said(files, tmp_path)
    assert files.stamp(["greet.py"], tmp_path) == ""
    write(TEXT.format(word="Back"))
    assert said(files, tmp_path) == "Back"


def test_a_file_that_never_worked_says_why_and_is_read_anew_when_it_is_mended(
    files: ToolFiles, write: Write, clock: Clock, tmp_path: Path
) -> None:
    path = write("def broken(:\n")
    with pytest.raises(BadFile, match=rf"{path}:1: "):
        said(files, tmp_path)
    write(TEXT.format(word="Mended"))
    clock.now_s += SETTLE_S
    assert said(files, tmp_path) == "Mended"


def test_who_has_a_version_does_not_wait_while_a_newer_one_is_loaded(
    files: ToolFiles, write: Write, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(TEXT.format(word="Hello"))
    assert said(files, tmp_path) == "Hello"
    hold, is_held = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "slow_to_load", SimpleNamespace(hold=hold, is_held=is_held))
    slow = "import slow_to_load\nslow_to_load.is_held.set()\nslow_to_load.hold.wait(60)\n"
    write(slow + TEXT.format(word="Late"))
    clock.now_s += SETTLE_S
    loading = threading.Thread(target=said, args=(files, tmp_path))
    loading.start()
    assert is_held.wait(60)
    assert said(files, tmp_path) == "Hello"
    hold.set()
    loading.join(60)
    assert said(files, tmp_path) == "Late"


def test_renewing_waits_until_an_edit_has_settled_and_no_longer_than_twice_that(
    files: ToolFiles, write: Write, clock: Clock, tmp_path: Path
) -> None:
    write(TEXT.format(word="Hello"))
    clock.now_s += 10
    assert said(files, tmp_path) == "Hello"
    write(TEXT.format(word="Hi"))
    files.file("greet.py", tmp_path).renew()
    assert said(files, tmp_path) == "Hi"
    os.utime(tmp_path / "greet.py", (clock.now_s + 1.5, clock.now_s + 1.5))
    began_s = clock.now_s
    files.file("greet.py", tmp_path).renew()
    assert clock.now_s - began_s <= 2 * SETTLE_S + 0.1
