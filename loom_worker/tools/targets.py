"""What a target names: ``file.py``, ``file.py:name``, ``package.module`` or ``package.module:name``, and its tools.

Used by workers, for the specs, and by their children, to run them: importing this is cheap.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from loom_worker.errors import BadFile
from loom_worker.tools.declare import tool as declared
from loom_worker.values.json import Json
from loom_worker.values.tools import Tool


def origin(target: str, folder: Path) -> Json:
    """How a child builds the tools of a target."""
    return {"kind": "python", "target": target, "folder": str(folder)}


def tools(target: str, folder: Path) -> tuple[Tool, ...]:
    """The tools that a target names; those that are not bounded carry their origin.

    Args:
        folder: where ``file.py`` is looked for.

    Raises:
        BadFile: it is not there, cannot be run, or has no tool; the text says file, line and what to do.
    """
    name, path = _split(target)[1], file_of(target, folder)
    module = _imported(target) if path is None else _from_file(path)
    found = _named(module, name, target) if name else _all(module, target)
    return tuple(each if each.is_bounded else replace(each, origin=origin(target, folder)) for each in found)


def file_of(target: str, folder: Path) -> Path | None:
    """The file of a target that names one, None for a module's."""
    where = _split(target)[0]
    return folder / where if where.endswith(".py") else None


def _split(target: str) -> tuple[str, str]:
    where, colon, name = target.rpartition(":")
    return (where, name) if colon else (target, "")


class _Fresh(SourceFileLoader):
    """Reads the source each time: byte code is told apart by whole seconds only, and users' folders stay clean."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError("byte code is neither read nor written")


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadFile(f"{path}: there is no such file of tools")
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    name = f"loom_tools_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Fresh(name, str(path)))
    if spec is None or spec.loader is None:
        raise BadFile(f"{path}: cannot be loaded as Python")
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    sys.modules[name] = module  # dataclasses look up the module of their annotations there
    _run(lambda: loader.exec_module(module), str(path))
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
