"""Loads and checks users' tools, from entry points and from the targets of agents, and follows their files."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path

from loom_worker.core.errors import BadFile, BadSettings
from loom_worker.core.live_files import DIGITS, Clock, Follower, Marks, marks_of
from loom_worker.core.values.agents import Content, ContentChange
from loom_worker.core.values.tools import Tool
from loom_worker.tools import targets
from loom_worker.tools.arguments import offered

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


log = logging.getLogger(__name__)


class ToolFiles:
    """All tool files of this process. Any thread may ask; a file that is slow to load does not delay the others."""

    def __init__(self, clock: Clock = time, content: Content | None = None) -> None:
        """Args: content: compares the files with those of other processes; None compares nothing."""
        self._clock = clock
        self._content = content or Content()
        self._lock = threading.Lock()
        self._files: dict[tuple[str, Path], ToolFile] = {}

    def tools(self, target: str, folder: Path) -> tuple[Tool, ...]:
        """The current tools of a target; a module's as it was first imported.

        Raises:
            BadFile: no version of them was ever usable in this process.
        """
        if targets.file_of(target, folder) is None:
            return checked(target, folder)
        file = self.file(target, folder)
        if file.digest() is None:
            file.look(is_wanted=True)
        return file.tools()

    def stamp(self, wanted: Iterable[str], folder: Path) -> str:
        """Changes whenever the result of ``tools`` would change."""
        files = [self.file(target, folder) for target in wanted if targets.file_of(target, folder) is not None]
        for each in files:
            each.look(is_wanted=each.digest() is None)
        return " ".join(each.digest() or "" for each in files)

    def file(self, target: str, folder: Path) -> "ToolFile":
        """The file that a target names."""
        with self._lock:
            key = (target, folder)
            if key not in self._files:
                self._files[key] = ToolFile(target, folder, self._clock)
                self._files[key].share(self._content)
            return self._files[key]


class ToolFile(Follower):
    """One target's file, in its newest working version. Only the first version waits for another thread's loading."""

    def __init__(self, target: str, folder: Path, clock: Clock) -> None:
        # Other folders may have files of the same name.
        place = hashlib.sha256(str(folder).encode("utf-8", "surrogatepass")).hexdigest()[:8]
        super().__init__(f"tools:{place}:{target}", clock=clock, look_s=0.0)
        self._target, self._folder = target, folder
        self._path = targets.file_of(target, folder) or folder / target
        self._tools: tuple[Tool, ...] = ()
        self._digest: str | None = None
        self._problem = "not read yet"

    def tools(self) -> tuple[Tool, ...]:
        """Its tools as of the last look.

        Raises:
            BadFile: it never had a usable version, or it is gone.
        """
        if not self._tools:
            raise BadFile(self._problem)
        return self._tools

    def digest(self) -> str | None:
        """The digest of the version in use; None if there is none."""
        return self._digest

    def _marks(self) -> Marks:
        return marks_of([self._path])

    def _read(self, marks: Marks) -> bool:
        if not marks:
            if self._tools:
                log.warning("tool file: %s is gone, and so are its tools", self._path)
            self._tools, self._digest = (), None
        mark = marks.get(self._path)
        stamp = f"{mark.size}:{mark.mtime_ns}" if mark else ""
        try:
            source = targets.read(self._path)
            digest = targets.digest(source)
            if digest == self._digest:
                self._problem = ""
                return True
            tools = checked(self._target, self._folder, source)
        except BadFile as error:
            if self._tools and self._problem != str(error):
                log.warning("tool file: %s; the former version stays in use", error)
                self._news.append(ContentChange("tool", str(self._path), "refused", stamp, str(error)))
            self._problem = str(error)
            return True
        if self._tools:
            log.info("tool file reloaded: %s", self._path)
            former = (self._digest or "")[:DIGITS]
            self._news.append(ContentChange("tool", str(self._path), "updated", stamp, digest[:DIGITS], former))
        self._tools, self._digest, self._problem = tools, digest, ""
        return True
