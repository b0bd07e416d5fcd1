"""What a target names: ``file.py``, ``file.py:name``, ``package.module`` or ``package.module:name``, and its tools.

Used by workers, for the specs, and by their children, to run them: importing this is cheap. A child runs the text of
the file that its worker took the spec from, whatever has become of the file since.
"""

import hashlib
import importlib
import importlib.util
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from operator import attrgetter
from pathlib import Path
from types import CodeType, ModuleType

from loom_worker.core.errors import BadFile
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Tool
from loom_worker.tools.declare import tool as declared


def origin(target: str, folder: Path, source: str | None = None) -> Json:
    """How a child builds the tools of a target.

    Args:
        source: the text of the file; None for a module's.
    """
    whole = {"kind": "python", "target": target, "folder": str(folder)}
    return whole if source is None else {**whole, "version": digest(source), "source": source}


def digest(source: str) -> str:
    """Of one version of a file of tools."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


def tools(target: str, folder: Path, source: str | None = None) -> tuple[Tool, ...]:
    """The tools that a target names; those that are not bounded carry their origin.

    Args:
        folder: where ``file.py`` is looked for.
        source: what the file says, for those who have read it; None: it is read now.

    Raises:
        BadFile: it is not there, cannot be run, or has no tool; the text says file, line and what to do.
    """
    name, path = _split(target)[1], file_of(target, folder)
    if path is None:
        module = _imported(target)
    else:
        source = read(path) if source is None else source
        module = _from_source(path, source)
    found = _named(module, name, target) if name else _all(module, target)
    return tuple(each if each.is_bounded else replace(each, origin=origin(target, folder, source)) for each in found)


def file_of(target: str, folder: Path) -> Path | None:
    """The file of a target that names one, None for a module's."""
    where = _split(target)[0]
    return folder / where if where.endswith(".py") else None


def _split(target: str) -> tuple[str, str]:
    where, colon, name = target.rpartition(":")
    return (where, name) if colon else (target, "")


def read(path: Path) -> str:
    """The text of a file of tools, in the encoding that it says it has.

    Raises:
        BadFile: it is not there, or is no text; with file and, where that is known, line.
    """
    if not path.is_file():
        raise BadFile(f"{path}: there is no such file of tools")
    try:
        return importlib.util.decode_source(path.read_bytes())
    except SyntaxError as error:  # of the line that names the encoding
        raise BadFile(f"{path}:1: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise BadFile(f"{path}: {error}") from error
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from error


class _Given(SourceFileLoader):
    """Runs a text that was read already; byte code is neither read nor written, so users' folders stay clean."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)

    def get_source(self, fullname: str) -> str:
        return self._source


def _from_source(path: Path, source: str) -> ModuleType:
    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    name = f"loom_tools_{path.stem}_{place}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Given(name, str(path), source))
    if spec is None or spec.loader is None:
        raise BadFile(f"{path}: cannot be loaded as Python")
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look up the module of their annotations there
    # Tracebacks show the lines that run, and not those of a later edit.
    linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
    try:
        _run(lambda: loader.exec_module(module), str(path))
    except BadFile:
        if before is not None:  # what it said before stays in use
            sys.modules[name] = before
        raise
    return module


def _imported(target: str) -> ModuleType:
    where = _split(target)[0]
    _run(lambda: importlib.import_module(where), where)
    return sys.modules[where]


def _run(load: Callable[[], object], where: str) -> None:
    try:
        load()
    except BadFile:
        raise
    except SyntaxError as error:
        raise BadFile(f"{error.filename or where}:{error.lineno or 1}: {error.msg}") from error
    except (Exception, SystemExit) as error:  # a user's file may raise anything; it must cost its own tools alone
        raise BadFile(f"{_place(error, where)}: {type(error).__name__}: {error}") from error


def _place(error: BaseException, where: str) -> str:
    """File and line where it was raised, as near to the file as its traceback tells."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == where]
    return f"{where}:{own[-1].lineno}" if own else where


def _named(module: ModuleType, name: str, target: str) -> tuple[Tool, ...]:
    by_name = {each.spec.name: each for each in vars(module).values() if isinstance(each, Tool)}
    try:
        return _tools(attrgetter(name)(module), target)
    except AttributeError as error:
        if name in by_name:
            return (by_name[name],)
        raise BadFile(f"{target}: there is no {name!r}; tools: {', '.join(by_name) or 'none'}") from error


def _all(module: ModuleType, target: str) -> tuple[Tool, ...]:
    found = {id(each): each for each in vars(module).values() if isinstance(each, Tool)}  # by id: two names, one tool
    if not found:
        raise BadFile(f"{target}: no tool in it; put @tool over a function")
    return tuple(found.values())


def _tools(thing: object, target: str) -> tuple[Tool, ...]:
    """What a name stands for: a tool, a module of tools, or a function that needs no more than its types."""
    if isinstance(thing, Tool):
        return (thing,)
    if isinstance(thing, ModuleType):
        return _all(thing, target)
    if inspect.isfunction(thing):
        return (declared(thing),)
    raise BadFile(f"{target}: is a {type(thing).__name__}, expected a function under @tool, or a module of them")
