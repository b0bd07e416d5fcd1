"""Imports only point down: a room imports floors below its own, and rooms of one floor never each other."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLOOR_0 = (
    "values errors settings settings_tree environ net scripts visible crash_points yaml_files redis_client"
    " sqlite_driver socket_folder isolation __init__ __version__ tool Caller ToolFailed"
)
FLOOR_1 = "lanes patterns memory llm tools judge store webhook trace events backends guard blobs agents skills"
FLOORS = {
    **dict.fromkeys(FLOOR_0.split(), 0),
    **dict.fromkeys(FLOOR_1.split(), 1),
    **dict.fromkeys("turn front summary recall results shared workflows".split(), 2),
    **dict.fromkeys("tasks wiring outfit kits knowledge models toolbox content_versions installation".split(), 3),
    **dict.fromkeys("calling outlook workshop cli supervise".split(), 3),
}
WEB_MAY_IMPORT = {"wiring", "settings", "errors", "values", "__init__", "__version__"}
FACE = "loom_worker/__init__.py"  # gives names of higher floors to users' files, and imports none before it is asked
CLI_MAY_IMPORT_WEB = {"loom_worker/cli/process.py"}  # the command that starts the front end


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(dotted: str) -> str:
    return [*dotted.split("."), "__init__"][1]


def python_files(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield str(path.relative_to(ROOT)), path


def test_a_room_imports_only_rooms_on_floors_below_its_own() -> None:
    wrong = []
    for name, path in python_files("loom_worker"):
        own = path.relative_to(ROOT / "loom_worker").parts[0].removesuffix(".py")
        for target in imports(path):
            if target.startswith("loom_worker") and (other := room(target)) != own and name != FACE:
                is_below = FLOORS[other] < FLOORS[own] or FLOORS[own] == FLOORS[other] in (0, 3)
                wrong += [] if is_below else [f"{name} imports {target}"]
            if target.split(".")[0] == "web" and name not in CLI_MAY_IMPORT_WEB:
                wrong.append(f"{name} imports {target}")
    assert wrong == []


def test_the_web_knows_only_wiring_settings_errors_and_values() -> None:
    wrong = [
        f"{name} imports {target}"
        for name, path in python_files("web")
        for target in imports(path)
        if target.startswith("loom_worker") and room(target) not in WEB_MAY_IMPORT
    ]
    assert wrong == []


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = "import sys, loom_worker; print([name for name in sys.modules if name.startswith('loom_worker.')])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_importing_the_web_loads_neither_scikit_learn_nor_an_llm_sdk() -> None:
    heavy = "sklearn numpy scipy watchdog anthropic httpx2 tiktoken alembic flower".split()
    code = f"import sys, web.app, web.serve; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_nothing_anywhere_is_pickled() -> None:
    serializers = {"pickle", "cPickle", "shelve", "marshal", "dill", "cloudpickle", "joblib"}
    found = [
        f"{name} imports {target}"
        for package in ("loom_worker", "web")
        for name, path in python_files(package)
        for target in imports(path)
        if target.split(".")[0] in serializers
    ]
    assert found == []


def test_no_process_of_loom_opens_files_with_two_copies_of_sqlite() -> None:
    allowed = {"loom_worker/sqlite_driver.py", "loom_worker/backends/sqlite_guard.py"}  # the guard is its own process
    found = [
        f"{name} imports {target}"
        for package in ("loom_worker", "web")
        for name, path in python_files(package)
        for target in imports(path)
        if target.split(".")[0] in {"sqlite3", "pysqlite3"} and name not in allowed
    ]
    assert found == []
