import os
import sys
from pathlib import Path

import pytest

from loom_worker.core.errors import BadFile
from loom_worker.tools import targets
from loom_worker.tools.targets import file_of, tools
from tests.support.callers import CALLER

HEAD = "from loom_worker.tools.declare import tool\n"
TWO = (
    HEAD
    + '''
@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b

@tool(name="take-away", bounded=True)
def subtract(a: int, b: int) -> int:
    """Subtract."""
    return a - b

def plain(a: int) -> int:
    """As it is."""
    return a

again = add
'''
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sums.py").write_text(TWO)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("sums.py", ["add", "take-away"]),
        ("sums.py:add", ["add"]),
        ("sums.py:subtract", ["take-away"]),
        ("sums.py:take-away", ["take-away"]),
        ("sums.py:plain", ["plain"]),
    ],
)
def test_a_target_names_tools_of_a_file(folder: Path, target: str, names: list[str]) -> None:
    assert [each.spec.name for each in tools(target, folder)] == names


def test_a_tool_carries_how_it_is_built_unless_it_runs_in_the_worker(folder: Path) -> None:
    add, subtract = tools("sums.py", folder)
    assert add.origin == targets.origin("sums.py", folder, TWO)
    assert subtract.origin is None
    assert add.run({"a": 1, "b": 2}, CALLER) == 3


def test_an_absolute_file_needs_no_folder(folder: Path) -> None:
    assert len(tools(str(folder / "sums.py"), Path("/nonesuch"))) == 2


def test_a_target_names_tools_of_a_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "trial_package"
    package.mkdir()
    (package / "__init__.py").write_text("from trial_package import sums\n")
    (package / "sums.py").write_text(TWO)
    monkeypatch.syspath_prepend(folder)
    try:
        assert [each.spec.name for each in tools("trial_package.sums", folder)] == ["add", "take-away"]
        assert [each.spec.name for each in tools("trial_package:sums", folder)] == ["add", "take-away"]
        assert [each.spec.name for each in tools("trial_package:sums.add", folder)] == ["add"]
    finally:
        for name in ("trial_package", "trial_package.sums"):
            sys.modules.pop(name, None)


def test_a_file_that_was_changed_within_the_same_moment_is_read_anew(folder: Path) -> None:
    tools("sums.py", folder)
    path = folder / "sums.py"
    before = path.stat()
    path.write_text(TWO.replace("a + b", "a * b"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert tools("sums.py:add", folder)[0].run({"a": 3, "b": 4}, CALLER) == 12
    assert list(folder.iterdir()) == [path]  # and no byte code is left there


def test_only_a_file_has_a_path(folder: Path) -> None:
    assert file_of("sums.py:add", folder) == folder / "sums.py"
    assert file_of("json.tool", folder) is None


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (HEAD + "\nx = 1 +\n", "bad.py:3", "invalid syntax"),
        (HEAD + "\n\nraise SystemExit('bye')\n", "bad.py:4", "SystemExit: bye"),
        (HEAD + "\nimport nonesuch\n", "bad.py:3", "ModuleNotFoundError: No module named 'nonesuch'"),
        (HEAD + "\nimport json\njson.loads('{')\n", "bad.py:4", "JSONDecodeError"),
        (HEAD + "\n@tool\ndef f(a): ...\n", "bad.py:3", "write a docstring"),
        (HEAD, "bad.py", "no tool in it; put @tool over a function"),
        ("\0", "bad.py", "null bytes"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, text: str, place: str, said: str) -> None:
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(BadFile) as caught:
        tools("bad.py", tmp_path)
    assert place in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.cases(
    ("target", "said"),
    [
        ("none.py", "no such file of tools"),
        ("sums.py:divide", "there is no 'divide'; tools: add, take-away"),
        ("sums.py:HEAD.x", "there is no 'HEAD.x'"),
        ("nonesuch.module", "No module named 'nonesuch'"),
        ("json", "no tool in it"),
        ("json:JSONDecodeError", "is a type, expected a function"),
        ("", "Empty module name"),
        (":", "Empty module name"),
    ],
)
def test_a_target_that_names_no_tool_is_refused(folder: Path, target: str, said: str) -> None:
    with pytest.raises(BadFile, match="(?s).*" + said.replace("'", ".")):
        tools(target, folder)


def test_a_childs_origin_is_plain_json() -> None:
    module = {"kind": "python", "target": "a", "folder": "/x"}
    assert targets.origin("a", Path("/x")) == module
    file = targets.origin("a.py", Path("/x"), "1")
    assert file == {**module, "target": "a.py", "version": file["version"], "source": "1"}
    assert file["version"] != targets.origin("a.py", Path("/x"), "2")["version"]
