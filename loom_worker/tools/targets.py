"""Loads the tools of a target: ``file.py``, ``file.py:name``, ``package.module`` or ``package.module:name``.

Workers use it for the specs, their child processes to run the tools, so importing it is cheap. A child runs the text
that its worker read the spec from, even if the file has changed since.
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
    """What a child process needs to build the tools of a target.

    Args:
        source: the text of the file; None for a module.
    """
    whole = {"kind": "python", "target": target, "folder": str(folder)}
    return whole if source is None else {**whole, "version": digest(source), "source": source}


def digest(source: str) -> str:
    """Identify one version of a tool file."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


def tools(target: str, folder: Path, source: str | None = None) -> tuple[Tool, ...]:
    """The tools that a target names; those that are not bounded carry their origin.

    Args:
        folder: that ``file.py`` is relative to.
        source: the text of the file if it was read already; None reads it now.

    Raises:
        BadFile: it is missing, cannot be run, or has no tool; the text names file, line and how to fix it.
    """
    (where, name), path = _split(target), file_of(target, folder)
    if path is None:
        _run(lambda: importlib.import_module(where), where)
        module = sys.modules[where]
    else:
        source = read(path) if source is None else source
        module = _from_source(path, source)
    found = _named(module, name, target) if name else _all(module, target)
    return tuple(each if each.is_bounded else replace(each, origin=origin(target, folder, source)) for each in found)


def file_of(target: str, folder: Path) -> Path | None:
    """The file that a target names, None if it names a module."""
    where = _split(target)[0]
    return folder / where if where.endswith(".py") else None


def is_unknown(target: str, error: BadFile) -> bool:
    """True if the error is that Python has no such module; ``shop.gone:pay`` can only be meant for a package shop."""
    (where, name), cause = _split(target), error.__cause__
    missing = cause.name if isinstance(cause, ModuleNotFoundError) and not where.endswith(".py") else None
    return missing == where.partition(".")[0] or (not name and f"{where}.".startswith(f"{missing}."))


def _split(target: str) -> tuple[str, str]:
    where, colon, name = target.rpartition(":")
    return (where, name) if colon else (target, "")


def read(path: Path) -> str:
    """The text of a tool file, in the encoding that it declares.

    Raises:
        BadFile: it is missing or is not text; with file and, where known, line.
    """
    if not path.is_file():
        raise BadFile(f"{path}: there is no such file of tools")
    try:
        return importlib.util.decode_source(path.read_bytes())
    except SyntaxError as error:  # in the line that declares the encoding
        raise BadFile(f"{path}:1: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise BadFile(f"{path}: {error}") from error
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from error


class _Given(SourceFileLoader):
    """Runs a text that was read already; no byte code is read or written, so users' folders stay clean."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)

    def get_source(self, fullname: str) -> str:
        return self._source


def _from_source(path: Path, source: str) -> ModuleType:
    name = f"loom_tools_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Given(name, str(path), source))
    if spec is None or spec.loader is None:
        raise BadFile(f"{path}: cannot be loaded as Python")
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look up the module of their annotations here
    # Tracebacks show the lines that ran, not those of a later edit.
    linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
    try:
        _run(lambda: loader.exec_module(module), str(path))
    except BadFile:
        if before is not None:  # the former version stays in use
            sys.modules[name] = before
        raise
    return module


def _run(load: Callable[[], object], where: str) -> None:
    try:
        load()
    except BadFile:
        raise
    except SyntaxError as error:
        raise BadFile(f"{error.filename or where}:{error.lineno or 1}: {error.msg}") from error
    except (Exception, SystemExit) as error:  # a user's file may raise anything; only its own tools may be lost
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == where]
        line = f":{own[-1].lineno}" if own else ""
        raise BadFile(f"{where}{line}: {type(error).__name__}: {error}") from error


def _named(module: ModuleType, name: str, target: str) -> tuple[Tool, ...]:
    """What a name stands for: a tool, a module of tools, or a function whose types say enough."""
    try:
        thing = attrgetter(name)(module)
    except AttributeError as error:
        by_name = {each.spec.name: each for each in vars(module).values() if isinstance(each, Tool)}
        if name in by_name:
            return (by_name[name],)
        raise BadFile(f"{target}: there is no {name!r}; tools: {', '.join(by_name) or 'none'}") from error
    if isinstance(thing, Tool):
        return (thing,)
    if isinstance(thing, ModuleType):
        return _all(thing, target)
    if inspect.isfunction(thing):
        return (declared(thing),)
    raise BadFile(f"{target}: is a {type(thing).__name__}, expected a function under @tool, or a module of them")


def _all(module: ModuleType, target: str) -> tuple[Tool, ...]:
    found = {id(each): each for each in vars(module).values() if isinstance(each, Tool)}  # by id: two names, one tool
    if not found:
        raise BadFile(f"{target}: no tool in it; put @tool over a function")
    return tuple(found.values())
