"""Files that are followed while a process runs: looked at, read once they have settled, and swapped as a whole.

``Follower`` decides when files are read; ``LiveFiles`` follows a folder whose files define things by name. Files of
tools (``tools/custom.py``) and the pattern library (``patterns/live.py``) are followers, too.
"""

import hashlib
import json
import logging
import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from loom_worker.core.values.agents import Content, ContentChange
from loom_worker.core.values.problems import Problem

LOOK_S = 1.0
"""Between two looks at the files."""
SETTLE_S = 1.0
"""A file written less than this ago may be incomplete, and one removed less than this ago may come back: editors and
version control replace files in two steps, and half a file can be an agent that needs no approvals."""
STEP_S = 0.05
"""Shortest time between two looks at files that have not settled."""
GRANULE_S = 2.0
"""A file younger than this when it was read is read once more: the clocks of some file systems tick every two seconds
only, and a second change within a tick leaves no mark."""
DIGITS = 12
"""Digits of a digest that are logged."""
_PLACES = frozenset({"source", "lines", "needed"})
"""Fields of an entry that say where its file lies on this machine, and where things stand in it."""

log = logging.getLogger(__name__)


class Clock(Protocol):
    """The functions of the module ``time`` that are used."""

    def monotonic(self) -> float:
        """Seconds since any point; never goes back."""

    def time(self) -> float:
        """Seconds since the epoch."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


class Mark(NamedTuple):
    """The state of a file, links followed: it differs once the file is written, replaced, or gets another mode."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    device: int
    mode: int


Marks = Mapping[Path, Mark | None]
"""None marks what this process may not look into."""


def marks_of(paths: Iterable[Path]) -> dict[Path, Mark | None]:
    """The marks of those paths that are there."""
    marks: dict[Path, Mark | None] = {}
    for path in paths:
        try:
            facts = os.stat(path)
        except FileNotFoundError:
            continue
        except OSError:
            marks[path] = None
            continue
        state = facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino, facts.st_dev, facts.st_mode
        marks[path] = Mark(*state)
    return marks


class Follower(ABC):
    """Content of files, taken up when they have changed and settled. Any thread may ask for it; only one reads."""

    def __init__(
        self,
        part: str,
        *,
        clock: Clock = time,
        settle_s: float = SETTLE_S,
        look_s: float = LOOK_S,
        most_s: float = math.inf,
    ) -> None:
        """Read nothing yet.

        Args:
            part: its name among the content that all processes must have alike.
            look_s: between two looks, however often it is asked for.
            most_s: changes that never end are taken up after this.
        """
        self.part = part
        self._clock = clock
        self._settle_s, self._look_s, self._most_s = settle_s, look_s, most_s
        self._content = Content()
        self._news: deque[ContentChange] = deque()
        """Edits that were noticed and not told yet."""
        self._looking = threading.Lock()
        self._due_s = -math.inf
        self._read_marks: Marks | None = None
        """Marks of the files as they were read; None: they are to be read again, whatever their marks."""
        self._known: Set[Path] = frozenset()
        self._pending: tuple[Set[Path], float] | None = None
        """Paths that have not settled yet, and since when there are these."""

    @abstractmethod
    def digest(self) -> str | None:
        """SHA-256 of what is in use, the same in every process and on every machine; None before the first load."""

    @abstractmethod
    def _marks(self) -> Marks:
        """The files as they are now."""

    @abstractmethod
    def _read(self, marks: Marks) -> bool:
        """Take up what the files say; False: read them again with the next look. The caller holds the lock."""

    def share(self, content: Content) -> None:
        """Compare this content with that of other processes from now on."""
        self._content = content
        content.follow(self.part, self)

    def look(self, *, is_wanted: bool = False) -> None:
        """Take up what has changed and settled, if a look is due or wanted; a wanted one waits for another thread's."""
        if is_wanted or self.wait_s() == 0.0:
            self._take_up(blocking=is_wanted, at_once=False)

    def renew(self) -> None:
        """Read the files now, after a wait of at most twice the time to settle; marks count for nothing.

        The times of files on a share may lag behind.
        """
        end_s = self._clock.monotonic() + 2 * self._settle_s
        with self._looking:
            self._read_marks = None
            while not self._advance(at_once=self._clock.monotonic() >= end_s):
                self._clock.sleep(STEP_S)
        self._tell_news()

    def wait_s(self) -> float:
        """Seconds until the next look is due."""
        return max(0.0, self._due_s - self._clock.monotonic())

    def _take_up(self, *, blocking: bool, at_once: bool) -> None:
        before = self.digest()
        if self._looking.acquire(blocking=blocking):
            try:
                self._advance(at_once=at_once)
            finally:
                self._looking.release()
        if self.digest() != before:
            self._content.accepted(self.part)
        self._tell_news()

    def _advance(self, *, at_once: bool) -> bool:
        """Read the files unless they are as they were; False if that has to wait until they have settled."""
        marks, now_s = self._marks(), self._clock.monotonic()
        self._due_s = now_s + self._look_s
        if marks == self._read_marks:
            self._pending = None
            return True
        if not at_once and self.digest() is not None and not self._has_settled(marks, now_s):
            self._due_s = now_s + min(self._look_s, max(STEP_S, self._settle_s / 10))
            return False
        self._note(marks, is_read=self._read(marks))
        return True

    def _note(self, marks: Marks, *, is_read: bool) -> None:
        self._read_marks = marks if is_read and not self._has_younger(marks, GRANULE_S) else None
        self._known, self._pending = marks.keys(), None

    def _has_settled(self, marks: Marks, now_s: float) -> bool:
        if self._pending is None or self._pending[0] != marks.keys():
            self._pending = marks.keys(), now_s
        waited_s = now_s - self._pending[1]
        lost = self._known - marks.keys() if waited_s < self._settle_s else ()
        folders = {next(each for each in path.parents if os.path.exists(each)) for path in lost}
        return waited_s >= self._most_s or not self._has_younger({**marks, **marks_of(folders)}, self._settle_s)

    def _has_younger(self, marks: Marks, age_s: float) -> bool:
        now_s = self._clock.time()
        return any(0 <= now_s - each.mtime_ns / 1e9 < age_s for each in marks.values() if each)

    def _tell_news(self) -> None:
        with suppress(IndexError):  # another thread tells the rest
            while True:
                self._content.tell(self._news.popleft())


class FileEntry(Protocol):
    """One thing that a file defines."""

    @property
    def file(self) -> str:
        """The path of its file."""


class FileSet(Protocol):
    """All that a folder defines, and what is wrong with its files."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of all files."""

    @property
    def refused(self) -> Mapping[str, Problem]:
        """Names that a file defines and that are left out because of an error, with that error."""

    @property
    def unread(self) -> frozenset[Path]:
        """Files that cannot be read, so that what they define is not known."""


FoundT = TypeVar("FoundT", bound=FileSet)


class LiveFiles(Follower, Generic[FoundT]):
    """Things that the files of a folder define; an error in one of them leaves its entries as they last were."""

    def __init__(self, part: str, *, clock: Clock = time) -> None:
        super().__init__(part, clock=clock)
        marks = self._marks()
        self._found = self._load()
        self._digest = digest(self._entries(self._found))
        self._log(self._found.problems)
        self._note(marks, is_read=True)
        self._due_s = clock.monotonic() + self._look_s

    @abstractmethod
    def _load(self) -> FoundT:
        """Read all of them; an error in a file is reported in what is returned, not raised."""

    @abstractmethod
    def _entries(self, found: FoundT) -> Mapping[str, FileEntry]:
        """What they define, by name."""

    @abstractmethod
    def _with(self, found: FoundT, entries: Mapping[str, Any], refused: Mapping[str, Problem]) -> FoundT:
        """The same with other entries."""

    def digest(self) -> str:
        return self._digest

    def latest(self, wanted: str | None) -> FoundT:
        """The entries as of a moment ago; as of now if ``wanted`` was not among them: another process may know it.

        Args:
            wanted: a name; None: none in particular.
        """
        self.look(is_wanted=wanted is not None and wanted not in self._entries(self._found))
        return self._found

    def _read(self, marks: Marks) -> bool:
        before = self._found
        found = self._following(self._load(), before)
        if found == before:
            return True
        entries, former, self._found = self._entries(found), self._entries(before), found
        self._digest = digest(entries)
        log.info("%s read anew: %s", self.part, ", ".join(sorted(entries)))
        new = tuple(problem for problem in found.problems if problem not in before.problems)
        self._log(new)
        self._news += edits(self.part, (former, entries), new, marks)
        return True

    def _following(self, found: FoundT, before: FoundT) -> FoundT:
        """The new entries, with the former ones in place of those that are refused now.

        Entries that did not change are the same objects as before.
        """
        new, former, refused = self._entries(found), self._entries(before), found.refused
        same = {name: former[name] for name, entry in new.items() if former.get(name) == entry}
        kept = {name: entry for name, entry in former.items() if name in refused or Path(entry.file) in found.unread}
        absent = {name: problem for name, problem in refused.items() if name not in kept}
        return self._with(found, MappingProxyType({**new, **same, **kept}), MappingProxyType(absent))

    def _log(self, problems: tuple[Problem, ...]) -> None:
        for problem in problems:
            log.warning("%s file: %s", self.part.removesuffix("s"), problem)


def edits(
    part: str, entries: tuple[Mapping[str, FileEntry], Mapping[str, FileEntry]], problems: Sequence[Problem], at: Marks
) -> Iterator[ContentChange]:
    """What the files of a part say otherwise now, and what is refused. Pure.

    That an agent has changed is told by who stores its versions (``agents/versions.py``).

    Args:
        entries: those of before, and those of now.
        problems: those that are new.
        at: the files when they were read.
    """
    marks = {str(path): f"{mark.size}:{mark.mtime_ns}" for path, mark in at.items() if mark}
    former, new = entries
    if part == "workflows":
        for name in sorted(former.keys() & new.keys()):
            if former[name] is not new[name]:
                before, now = (digest({name: each[name]})[:DIGITS] for each in entries)
                yield ContentChange("workflow", name, "updated", marks.get(new[name].file, ""), now, before)
    for problem in problems:
        if not problem.is_warning:
            place = f"{problem.file}:{problem.line}" if problem.line else problem.file
            kind: Literal["agent", "workflow"] = "workflow" if part == "workflows" else "agent"
            text = str(replace(problem, file="", line=0))
            yield ContentChange(kind, place, "refused", marks.get(problem.file, ""), text)


def digest(entries: Mapping[str, FileEntry]) -> str:
    """SHA-256 of all that entries say, in hexadecimal; where their files lie makes no difference."""
    text = json.dumps(_plain(entries), sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    """As JSON takes it; sets in order, for theirs differs from process to process."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value) if each.name not in _PLACES}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Set):
        return sorted(json.dumps(_plain(each), sort_keys=True, default=repr) for each in value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
