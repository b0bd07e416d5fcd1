"""What files define, followed as they change, so that every process of Loom comes to have the same."""

import hashlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Literal, Protocol, TypeVar

from loom_worker.core.values.agents import Alone, Content, ContentChange
from loom_worker.core.values.problems import Problem

LOOK_S = 1.0
"""Between two checks of the files."""
SETTLE_S = 1.0
"""A file that was written less than this ago may be incomplete: half of it can be an agent that needs no approvals."""
DIGITS = 12
"""Of a digest that are told."""
STEP_S = 0.05
"""Between two checks of a file that is waited for."""
_PLACES = frozenset({"source", "lines", "needed"})
"""Fields of an entry that say where its file lies on this machine, and where things stand in it."""

log = logging.getLogger(__name__)

Stamp = tuple[tuple[str, int, int, int], ...]
"""Of each file: path, inode, size in bytes, time of its last change in ns."""


class FileEntry(Protocol):
    """One thing that a file defines."""

    @property
    def file(self) -> str:
        """The path of its file."""


class FileSet(Protocol):
    """All that a folder defines, and what is wrong with its files."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Of all files."""

    @property
    def refused(self) -> Mapping[str, Problem]:
        """Names that a file defines and that are left out because of an error, with that error."""

    @property
    def unread(self) -> frozenset[Path]:
        """Files that cannot be read, so that what they define is not known."""


FoundT = TypeVar("FoundT", bound=FileSet)


class Source(Protocol[FoundT]):
    """A folder of files of one kind."""

    @property
    def part(self) -> str:
        """What they define, in the plural: its name among the content that all processes must have alike."""

    def files(self) -> Sequence[Path]:
        """Those that may define something."""

    def load(self) -> FoundT:
        """Read all of them; an error in a file is reported in what is returned, not raised."""

    def entries(self, found: FoundT) -> Mapping[str, FileEntry]:
        """What they define, by name."""

    def with_entries(self, found: FoundT, entries: Mapping[str, Any], refused: Mapping[str, Problem]) -> FoundT:
        """The same with other entries."""


class LiveFiles(Generic[FoundT]):
    """What the files of a folder define; an error in one of them leaves its entries as they last were."""

    def __init__(
        self,
        source: Source[FoundT],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """Read them; an error in a file is logged, not raised."""
        self._source = source
        self._clock, self._wall_clock, self._pause = clock, wall_clock, pause
        self._content: Content = Alone()
        self._looking = threading.Lock()
        self._news: deque[ContentChange] = deque()
        """Edits that were noticed and not told yet."""
        self._looked_s = clock()
        self._stamp: Stamp | None = _stamp(source.files)
        self._found = source.load()
        self._digest = digest(source.entries(self._found))
        self._log(self._found.problems)

    def share(self, content: Content) -> None:
        """Compare these entries with those of other processes from now on."""
        self._content = content
        content.follow(self._source.part, self)

    def digest(self) -> str:
        """SHA-256 of all that the entries in use say, the same in every process and on every machine."""
        return self._digest

    def latest(self, wanted: str | None) -> FoundT:
        """The entries as of a moment ago; as of now if ``wanted`` was not among them: another process may know it.

        Args:
            wanted: a name; None: none in particular.
        """
        before = self._digest
        if wanted is not None and wanted not in self._source.entries(self._found):
            with self._looking:
                self._look()
        elif self._clock() - self._looked_s >= LOOK_S and self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()
        if self._digest != before:
            self._content.accepted(self._source.part)
        self._tell_news()
        return self._found

    def renew(self) -> None:
        """Read the files now, after a wait of at most twice SETTLE_S for one that was written a moment ago."""
        end_s = self._clock() + 2 * SETTLE_S
        with self._looking:
            while self._is_fresh(_stamp(self._source.files)) and self._clock() < end_s:
                self._pause(STEP_S)
            self._stamp = None  # whatever the times of the files say: those of a share may lag behind
            self._look()
        self._tell_news()

    def _look(self) -> None:
        self._looked_s = self._clock()
        stamp = _stamp(self._source.files)
        if stamp == self._stamp or self._is_fresh(stamp):
            return
        before = self._found
        self._found, self._stamp = following(self._source, self._source.load(), before), stamp
        entries = self._source.entries(self._found)
        self._digest = digest(entries)
        log.info("%s read anew: %s", self._source.part, ", ".join(sorted(entries)))
        new = tuple(problem for problem in self._found.problems if problem not in before.problems)
        self._log(new)
        self._news += edits(self._source.part, (self._source.entries(before), entries), new, stamp)

    def _tell_news(self) -> None:
        with suppress(IndexError):  # another thread tells the rest
            while True:
                self._content.tell(self._news.popleft())

    def _is_fresh(self, stamp: Stamp) -> bool:
        now_s = self._wall_clock()
        return any(0 <= now_s - changed_ns / 1e9 < SETTLE_S for *_, changed_ns in stamp)

    def _log(self, problems: tuple[Problem, ...]) -> None:
        for problem in problems:
            log.warning("%s file: %s", self._source.part.removesuffix("s"), problem)


def following(source: Source[FoundT], found: FoundT, before: FoundT) -> FoundT:
    """The new entries, with the former ones in place of those that are refused now. Pure.

    Entries that did not change are the same objects as before.
    """
    new, former = source.entries(found), source.entries(before)
    same = {name: former[name] for name, entry in new.items() if former.get(name) == entry}
    kept = {name: entry for name, entry in former.items() if name in found.refused or Path(entry.file) in found.unread}
    refused = {name: problem for name, problem in found.refused.items() if name not in kept}
    return source.with_entries(found, MappingProxyType({**new, **same, **kept}), MappingProxyType(refused))


def edits(
    part: str,
    entries: tuple[Mapping[str, FileEntry], Mapping[str, FileEntry]],
    problems: Sequence[Problem],
    stamp: Stamp,
) -> Iterator[ContentChange]:
    """What the files of a part say otherwise now, and what is refused. Pure.

    That an agent has changed is told by who stores its versions (``agents/versions.py``).

    Args:
        entries: those of before, and those of now.
        problems: those that are new.
    """
    marks = {path: f"{size}:{changed_ns}" for path, _, size, changed_ns in stamp}
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


def _stamp(files: Callable[[], Sequence[Path]]) -> Stamp:
    stamps = []
    try:
        for path in files():
            facts = path.stat()
            stamps.append((str(path), facts.st_ino, facts.st_size, facts.st_mtime_ns))
    except OSError:  # deleted meanwhile
        return ()
    return tuple(stamps)
