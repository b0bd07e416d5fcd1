import importlib
from pathlib import Path

import pytest

from loom_worker.tools.custom import LoadedTools, installed, load

TOOL = '''
from loom_worker.tools.declare import tool

@tool{options}
def {name}(n: int = 0) -> int:
    """Act."""
    return n
'''


def write(folder: Path, file: str, name: str, options: str = "") -> None:
    (folder / file).write_text(TOOL.format(name=name, options=options))


def names(found: LoadedTools) -> list[str]:
    return [each.spec.name for each in found.tools]


def test_a_bad_file_costs_its_own_tools_alone(tmp_path: Path) -> None:
    write(tmp_path, "good.py", "good")
    write(tmp_path, "better.py", "better")
    (tmp_path / "bad.py").write_text("1 / 0\n")
    write(tmp_path, "odd.py", "odd", "(schema={'type': 'object', 'properties': {'n': {'type': 'text'}}})")
    found = load(["bad.py", "good.py", "none.py", "odd.py", "better.py"], tmp_path)
    assert names(found) == ["good", "better"]
    bad, none, odd = found.problems
    assert "bad.py:1: ZeroDivisionError" in bad
    assert "no such file" in none
    assert odd.startswith("odd.py: tool 'odd': invalid input schema at /properties/n/type")


def test_a_name_that_is_taken_costs_the_second_of_the_two(tmp_path: Path) -> None:
    write(tmp_path, "one.py", "same")
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
    write(tmp_path, "acme_tools_a.py", "alpha")
    write(tmp_path, "acme_tools_b.py", "beta")
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
