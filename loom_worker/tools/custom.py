"""Loads and checks users' tools, from entry points and from the targets of agents."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path

from loom_worker.core.errors import BadFile, BadSettings
from loom_worker.core.values.tools import Tool
from loom_worker.tools import targets
from loom_worker.tools.schemas import offered

GROUP = "loom.tools"
"""The entry-point group; each entry point names a module of tools, a tool or a function."""


@dataclass(frozen=True, slots=True)
class LoadedTools:
    """The usable tools, and a text for each that is not."""

    tools: tuple[Tool, ...] = ()
    problems: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Those of ``problems`` whose target names no module."""


def checked(target: str, folder: Path, source: str | None = None) -> tuple[Tool, ...]:
    """The tools of one target; the arguments are those of ``targets.tools``.

    Raises:
        BadFile: they cannot be used.
    """
    given = targets.tools(target, folder, source)
    for each in given:
        try:
            offered(each.spec)
        except BadSettings as error:
            raise BadFile(f"{target}: {error}") from error
    # Each tool has its own circuit breaker: another agent's file may have a tool of the same name.
    group = f"python:{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}:{target}"
    return tuple(replace(each, group=each.group or f"{group}:{each.spec.name}") for each in given)


def load(
    wanted: Iterable[str],
    folder: Path,
    *,
    taken: Iterable[str] = (),
    read: Callable[[str, Path], tuple[Tool, ...]] = checked,
) -> LoadedTools:
    """The tools of some targets; an error in one of them only loses its own tools.

    Args:
        wanted: ``file.py``, ``file.py:name``, ``package.module`` or ``package.module:name``.
        folder: that files are relative to.
        taken: names that other tools already have.
        read: returns the tools of a target, or raises BadFile.
    """
    found: list[Tool] = []
    names, problems, unknown = set(taken), list[str](), list[str]()
    for target in wanted:
        try:
            given = read(target, folder)
        except BadFile as error:
            is_unknown = targets.is_unknown(target, error)
            problems.append(f"{target}: no such tool or module: {error.__cause__}" if is_unknown else str(error))
            unknown += problems[-1:] if is_unknown else []
            continue
        for each in given:
            if each.spec.name in names:
                problems.append(f"{target}: a tool is named {each.spec.name!r} already; give this one another name=")
            else:
                names.add(each.spec.name)
                found.append(each)
    return LoadedTools(tuple(found), tuple(problems), tuple(unknown))


def installed(*, taken: Iterable[str] = ()) -> LoadedTools:
    """The tools of the installed packages, found by their entry points."""
    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    wanted = dict.fromkeys(f"{each.module}:{each.attr}" if each.attr else each.module for each in points)
    return load(wanted, Path(), taken=taken)
