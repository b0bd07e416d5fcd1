import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from loom_worker import __version__
from loom_worker.patterns import library
from tests.unit.docs.pages import ROOT, files, text

PYPROJECT = tomllib.loads(text("pyproject.toml"))
NEEDS = (
    *PYPROJECT["project"]["dependencies"],
    *(need for group in PYPROJECT["project"]["optional-dependencies"].values() for need in group),
    *PYPROJECT["build-system"]["requires"],
)
OURSELVES = PYPROJECT["project"]["name"]
DIRECT = {need.name: need for need in map(Requirement, NEEDS) if need.name != OURSELVES}
TO_LEARN = tuple(PYPROJECT["project"]["optional-dependencies"]["learn"])
TO_RUN = (*PYPROJECT["project"]["dependencies"], *PYPROJECT["build-system"]["requires"])
LOCKS = {
    "constraints.txt": TO_RUN,
    "constraints-dev.txt": tuple(need for need in NEEDS if need not in TO_LEARN),
    "constraints-learn.txt": TO_LEARN,
}


def locked(name: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Of each package that a file of exact versions names: the version and the hashes."""
    found = {}
    for requirement, hashes in re.findall(
        r"^(\S.*?)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", text(name), re.MULTILINE
    ):
        need = Requirement(requirement)
        [exact] = need.specifier
        assert exact.operator == "=="
        assert canonicalize_name(need.name) not in found
        found[canonicalize_name(need.name)] = exact.version, tuple(re.findall(r"sha256:\w+", hashes))
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from what the repository holds."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed here")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_every_file_that_is_read_at_run_time(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    needed = {
        str(path.relative_to(ROOT))
        for path in files()
        if path.relative_to(ROOT).parts[0] in ("loom_worker", "web")
        and (path.suffix != ".md" or path.is_relative_to(ROOT / "loom_worker" / "cli" / "project"))
    }
    shipped = [path.relative_to(ROOT / "patterns") for path in files() if path.is_relative_to(ROOT / "patterns")]
    assert len({path.parts[0] for path in shipped}) >= 11
    patterns = {f"loom_worker/patterns/library_files/{path}" for path in shipped}
    assert sorted((needed | patterns) - packed) == []
    suffixes = {Path(name).suffix for name in needed}
    assert suffixes >= {".py", ".lua", ".yaml", ".json", ".gz", ".html"}
    assert any("migrations/versions" in name for name in needed)
    assert any("patterns/schemas" in name for name in needed)
    assert {"loom_worker/cli/project/env", "loom_worker/cli/project/README.md"} <= needed


def test_the_wheels_library_is_the_repositorys(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        library_files = [name for name in packed.namelist() if "/library_files/" in name]
        packed.extractall(tmp_path, members=library_files)
    installed = library.load(tmp_path / "loom_worker" / "patterns" / "library_files")
    assert installed.problems == ()
    assert installed.patterns == library.load(ROOT / "patterns").patterns


def test_the_wheel_has_this_version_and_brings_the_command(wheel: Path) -> None:
    assert wheel.name.startswith(f"loom_worker-{__version__}-")
    with zipfile.ZipFile(wheel) as packed:
        entries = next(name for name in packed.namelist() if name.endswith("entry_points.txt"))
        assert "loom = loom_worker.cli.main:main" in packed.read(entries).decode()


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_has_an_exact_version_that_the_project_accepts_and_a_hash(name: str) -> None:
    lines = text(name).splitlines()
    packages = locked(name)
    assert len(packages) == len([line for line in lines if not line.startswith(" ")])
    assert sum(len(hashes) for _, hashes in packages.values()) == len([x for x in lines if x.startswith(" ")])
    needs = [need for need in map(Requirement, LOCKS[name]) if need.name != OURSELVES]
    assert needs
    missing = ("", ())
    wrong = [
        str(need)
        for need in needs
        if not need.specifier.contains(packages.get(canonicalize_name(need.name), missing)[0])
    ]
    assert wrong == []


def test_what_is_tested_is_what_runs() -> None:
    to_run, tested = locked("constraints.txt"), locked("constraints-dev.txt")
    assert {name: tested.get(name) for name in to_run if name != "hatchling"} == {
        name: found for name, found in to_run.items() if name != "hatchling"
    }


def test_dspy_changes_no_package_that_other_tests_use() -> None:
    tested, added = locked("constraints-dev.txt"), locked("constraints-learn.txt")
    both = tested.keys() & added.keys()
    assert len(both) > 20
    assert {name: added[name][0] for name in both} == {name: tested[name][0] for name in both}


def test_nothing_tells_to_install_looms_own_name_from_an_index() -> None:
    # Nobody has claimed it there: whoever does would be installed by all who follow the line.
    line = re.compile(rf"pip\S* (?:install|download)\b[^\n`]*\b{OURSELVES}\b(?!/)|uvx? [^\n`]*\b{OURSELVES}\b")
    told = [str(path.relative_to(ROOT)) for path in files() if line.search(path.read_text("utf-8", errors="replace"))]
    assert told == []
    assert line.search(f"pip install '{OURSELVES}[x]'")


def test_every_direct_package_has_its_line_and_no_other_has_one() -> None:
    told = re.findall(r"^\| `([\w-]+)` \|", text("docs/decisions/0002-packages.md"), re.MULTILINE)
    assert sorted(told, key=str.lower) == sorted(DIRECT, key=str.lower)


def test_no_file_names_this_machine_or_a_registry() -> None:
    # Put together here, or this file would be found too.
    words = ["/" + "work/", "/" + "root/", "pypi" + ".org", "python" + "hosted", "debian" + ".org"]
    room = "shared" + "/"
    words += ["registry." + "npmjs", room]
    ours = re.compile(rf"(?:loom_worker|tests/unit)/{room}|\[{room}\]")
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in files()
        for content in [ours.sub("", path.read_text(encoding="utf-8", errors="replace"))]
        for word in words
        if word in content
    ]
    assert found == [f".ci/run: {room}"]


def test_only_one_line_of_the_ci_script_reaches_outside_the_repository() -> None:
    outside = [line for line in text(".ci/run").splitlines() if re.search(r"\.\./\w", line)]
    assert len(outside) == 1
    assert "LOOM_TEST_DATA" in outside[0]


def test_the_ci_script_is_executable_bash() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
