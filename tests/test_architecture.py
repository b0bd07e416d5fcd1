"""The map of docs/architecture.md: a package imports layers below its own, and siblings without a circle."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYERS = {
    **dict.fromkeys("core".split(), 0),
    **dict.fromkeys("store lanes blobs".split(), 1),
    **dict.fromkeys("agents llm tools backends patterns skills memory guard judge".split(), 2),
    **dict.fromkeys("webhook trace events demo".split(), 2),
    **dict.fromkeys("turn workflows".split(), 3),
    **dict.fromkeys("runtime tasks service fronts".split(), 4),
    **dict.fromkeys("web cli supervisor".split(), 5),
}
WEB_MAY_IMPORT = {"service", "fronts", "core", "__version__"}
MOST_PACKAGES = 26
FACE = "loom_worker/__init__.py"  # gives names of higher layers to users' files, and imports none before it is asked


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def package(dotted: str) -> str:
    """The package that a dotted name belongs to; web is a package beside the others."""
    parts = dotted.split(".")
    return parts[0] if parts[0] == "web" else [*parts, "__init__"][1]


def python_files(folder: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield str(path.relative_to(ROOT)), path


def arrows() -> dict[tuple[str, str], str]:
    """(package, package it imports) to one import that says so."""
    found = {}
    for name, path in (*python_files("loom_worker"), *python_files("web")):
        own = package(name.removesuffix(".py").replace("/", "."))
        for target in imports(path):
            if (
                name != FACE
                and target.split(".")[0] in ("loom_worker", "web")
                and package(target) in LAYERS.keys() - {own}
            ):
                found[own, package(target)] = f"{name} imports {target}"
    return found


def test_every_package_stands_on_the_map() -> None:
    folders = {path.name for path in (ROOT / "loom_worker").iterdir() if (path / "__init__.py").exists()}
    assert folders | {"web"} == LAYERS.keys()
    assert len(LAYERS) <= MOST_PACKAGES


def test_a_package_imports_no_layer_above_its_own() -> None:
    assert [line for (own, other), line in arrows().items() if LAYERS[other] > LAYERS[own]] == []


def test_packages_of_one_layer_import_each_other_without_a_circle() -> None:
    left = {own: {other for one, other in arrows() if one == own} for own in LAYERS}
    while free := [own for own, others in left.items() if not others & left.keys()]:
        left = {own: others for own, others in left.items() if own not in free}
    assert left == {}


def test_modules_import_each_other_without_a_circle() -> None:
    """Imports inside functions too: a circle would be found only by whoever imports its members in another order."""
    files = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
        for folder in ("loom_worker", "web")
        for name, path in python_files(folder)
    }
    left = {
        module: {
            target if target in files else target.rpartition(".")[0]
            for target in imports(path)
            if module != "loom_worker"
        }
        - {module}
        for module, path in files.items()
    }
    while free := [module for module, others in left.items() if not others & left.keys()]:
        left = {module: others for module, others in left.items() if module not in free}
    assert left == {}


def test_every_module_that_a_string_names_exists() -> None:
    """Command lines, Celery's settings and the fault harness name modules in strings, which no type checker reads."""
    named = re.compile(r"\b(loom_worker(?:\.[a-z_]+)+)\b(?!\()")
    wrong = []
    for folder in ("loom_worker", "web", "tests/chaos", "bench"):
        for name, path in python_files(folder):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    wrong += [f"{name}: {dotted}" for dotted in named.findall(node.value) if not _is_there(dotted)]
    assert wrong == []


def _is_there(dotted: str) -> bool:
    """True of a module, a package, or a name within one."""
    parts = dotted.split(".")
    return (
        any((ROOT.joinpath(*parts[:n]).with_suffix(".py")).exists() for n in (len(parts), len(parts) - 1))
        or (ROOT.joinpath(*parts) / "__init__.py").exists()
    )


def test_the_web_knows_only_the_service_the_fronts_and_the_core() -> None:
    wrong = [
        f"{name} imports {target}"
        for name, path in python_files("web")
        for target in imports(path)
        if target.startswith("loom_worker") and package(target) not in WEB_MAY_IMPORT
    ]
    assert wrong == []


def test_only_the_command_that_starts_it_imports_the_web() -> None:
    found = {
        name for name, path in python_files("loom_worker") for target in imports(path) if target.split(".")[0] == "web"
    }
    assert found == {"loom_worker/cli/process.py"}


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = "import sys, loom_worker; print([name for name in sys.modules if name.startswith('loom_worker.')])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_importing_the_web_loads_neither_scikit_learn_nor_an_llm_sdk() -> None:
    heavy = "sklearn numpy scipy anthropic openai httpx2 tiktoken alembic flower".split()
    code = f"import sys, web.app, web.serve; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_nothing_anywhere_is_pickled() -> None:
    serializers = {"pickle", "cPickle", "shelve", "marshal", "dill", "cloudpickle", "joblib"}
    found = [
        f"{name} imports {target}"
        for folder in ("loom_worker", "web")
        for name, path in python_files(folder)
        for target in imports(path)
        if target.split(".")[0] in serializers
    ]
    assert found == []


def test_no_process_of_loom_opens_files_with_two_copies_of_sqlite() -> None:
    allowed = {
        "loom_worker/core/sqlite_driver.py",
        "loom_worker/backends/sqlite_guard.py",
    }  # the guard is its own process
    found = [
        f"{name} imports {target}"
        for folder in ("loom_worker", "web")
        for name, path in python_files(folder)
        for target in imports(path)
        if target.split(".")[0] in {"sqlite3", "pysqlite3"} and name not in allowed
    ]
    assert found == []


def test_each_package_names_all_its_modules() -> None:
    """A stranger finds the file in the first lines of its package."""
    unnamed = {}
    for init in (ROOT / "web" / "__init__.py", *sorted((ROOT / "loom_worker").glob("*/**/__init__.py"))):
        if "migrations" in init.parts or "project" in init.parts:
            continue
        text = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
        held = {path.stem for path in init.parent.glob("*.py")} - {"__init__"}
        held |= {path.parent.name for path in init.parent.glob("*/__init__.py")} - {"migrations"}
        named = set(re.findall(r"``(\w+)/?``", text)) - {"migrations"}
        if held - named or (named - held):
            unnamed[str(init.parent.relative_to(ROOT))] = (sorted(held - named), sorted(named - held))
    assert unnamed == {}, "modules that are not named, and names that are no modules"


def test_a_public_method_without_a_docstring_does_what_another_class_says_of_that_name() -> None:
    """Ruff's D102 knows no protocols: their adapters would have to repeat what they say, or to point there."""
    documented, silent = set(), {}
    for folder in ("loom_worker", "web"):
        for name, path in python_files(folder):
            if "migrations" in path.parts:
                continue
            for method, place in _public_methods(ast.parse(path.read_text(encoding="utf-8"))):
                if ast.get_docstring(method):
                    documented.add(method.name)
                else:
                    silent[f"{name}: {place}.{method.name}"] = method.name
    assert [place for place, method in silent.items() if method not in documented] == []


def _public_methods(module: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    for node in module.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
                    yield method, node.name
