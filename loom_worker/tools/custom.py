"""Users' tools as a worker knows them: from entry points and from the targets of agents, each checked."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from loom_worker.core.errors import BadFile, BadSettings
from loom_worker.core.values.tools import Tool
from loom_worker.tools import targets
from loom_worker.tools.schemas import compiled

GROUP = "loom.tools"
"""Of entry points; each names a module of tools, a tool or a function."""


@dataclass(frozen=True, slots=True)
class LoadedTools:
    """The tools that can be used, and a text for each thing that cannot."""

    tools: tuple[Tool, ...] = ()
    problems: tuple[str, ...] = ()


def checked(target: str, folder: Path, source: str | None = None) -> tuple[Tool, ...]:
    """The tools of one target; the arguments are those of ``targets.tools``.

    Raises:
        BadFile: they cannot be used.
    """
    given = targets.tools(target, folder, source)
    for each in given:
        try:
            compiled(each.spec)
        except BadSettings as error:
            raise BadFile(f"{target}: {error}") from error
    return tuple(replace(each, group=each.group or _group(each, target, folder)) for each in given)


def load(
    wanted: Iterable[str],
    folder: Path,
    *,
    taken: Iterable[str] = (),
    read: Callable[[str, Path], tuple[Tool, ...]] = checked,
) -> LoadedTools:
    """The tools of some targets; what is wrong with one of them costs its own tools alone.

    Args:
        wanted: ``file.py``, ``file.py:name``, ``package.module`` or ``package.module:name``.
        folder: where files are looked for.
        taken: names that other tools have already.
        read: gives the tools of a target, or raises BadFile.
    """
    found: list[Tool] = []
    names, problems = set(taken), []
    for target in wanted:
        try:
            given = read(target, folder)
        except BadFile as error:
            problems.append(str(error))
            continue
        for each in given:
            if each.spec.name in names:
                problems.append(f"{target}: a tool is named {each.spec.name!r} already; give this one another name=")
            else:
                names.add(each.spec.name)
                found.append(each)
    return LoadedTools(tuple(found), tuple(problems))


def _group(tool: Tool, target: str, folder: Path) -> str:
    """A circuit breaker of its own: another agent's file may have a tool of the same name."""
    place = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    return f"python:{place}:{target}:{tool.spec.name}"


def installed(*, taken: Iterable[str] = ()) -> LoadedTools:
    """The tools of the packages that are installed, by their entry points; what is wrong with one is a problem."""
    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    return load(dict.fromkeys(map(_target, points)), Path(), taken=taken)


def _target(point: EntryPoint) -> str:
    return f"{point.module}:{point.attr}" if point.attr else point.module
