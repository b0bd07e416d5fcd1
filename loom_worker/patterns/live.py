"""The pattern library of a process: read again when its files change, and replaced as a whole.

What lies in the folder is the truth; events of the file system only say that it is time to check. Whatever fails, what
was loaded last goes on answering.
"""

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from loom_worker.core.values.agents import Alone, Content
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.patterns import Pattern, PatternUpdateEvent
from loom_worker.patterns.library import (
    FileContent,
    Library,
    load,
    merged,
    problem_text,
    read_file,
    with_outcome,
    with_shipped,
)
from loom_worker.patterns.match import IndexSource, InProcess, Matcher
from loom_worker.patterns.watch import LOOK_S, FileWatcher, Mark, look

log = logging.getLogger(__name__)

PART = "patterns"
"""The library's name among the content that all processes must have alike."""
SETTLED_NS = 2_000_000_000
"""A file that was written less than this before it was read is read once more at the next check: the clocks of some
file systems tick every two seconds only, and a second change within a tick leaves no mark."""
STAYS = "the former version stays in use"


class UpdateListener(Protocol):
    """Receives the updates of a library."""

    def publish(self, event: PatternUpdateEvent) -> None:
        """Pass on one update. Called without any lock held, by the watching thread where there is one."""


@dataclass(frozen=True, slots=True)
class LibraryState:
    """One version of the library, whole."""

    matcher: Matcher
    problems: tuple[str, ...]
    """Why files or patterns are left out or are not those on disk, each as ``file:line: reason``."""
    loaded_ms: int
    """When, in milliseconds since 1970."""
    files: int


class LiveLibrary:
    """Patterns that follow their files. Any thread may ask; only the first question waits, for the first load."""

    def __init__(
        self,
        root: Path,
        *,
        listener: UpdateListener | None = None,
        watcher: FileWatcher | None = None,
        index: IndexSource | None = None,
        shipped: Path | None = None,
    ) -> None:
        """Read and start nothing before the first question: a process may fork until then.

        Args:
            listener: receives every load that changed patterns or problems, the first included. What it raises is
                logged.
            watcher: None: files are only checked by ``reload``.
            index: where fitted indexes come from; unless given, they are fitted in this process.
            shipped: another folder whose patterns are added; read once, as it changes with the package alone.
        """
        self.root = root
        self._listener = listener
        self._watcher = watcher
        self._index = index or InProcess()
        self._shipped_root = shipped
        self._shipped: Library | None = None
        self._content: Content = Alone()
        self._state: LibraryState | None = None
        self._files: dict[Path, _LoadedFile] = {}
        self._library = Library((), ())
        self._watch_problems: tuple[str, ...] = ()
        self._loading = threading.Lock()
        self._unpublished: deque[PatternUpdateEvent] = deque()
        self._thread: threading.Thread | None = None
        self._digest: tuple[Matcher | None, str] = None, ""

    def share(self, content: Content) -> None:
        """Compare this library with those of other processes from now on."""
        self._content = content
        content.follow(PART, self)

    def state(self) -> LibraryState:
        """The library as it is now."""
        return self._state or self._first()

    def current(self) -> Matcher:
        """The index as it is now; later changes make a new one."""
        return self.state().matcher

    def by_id(self, pattern_id: str) -> Pattern | None:
        """The pattern with this path-qualified id, or None."""
        return self.current().by_id(pattern_id)

    def ids(self) -> tuple[str, ...]:
        """The ids of all patterns, in the library's order."""
        return self.current().ids()

    def patterns(self) -> tuple[Pattern, ...]:
        """All patterns, in the library's order."""
        return self.current().patterns

    def reload(self) -> None:
        """Check the files now, in this thread, and read what has changed; never raises for what it finds."""
        if self._state is None:
            self._first()
            return
        with self._loading:
            self._update(self._state)
        self._publish()

    def renew(self) -> None:
        """As ``reload``, for the comparison with other processes."""
        self.reload()

    def digest(self) -> str | None:
        """Of all patterns in use; None before the first load."""
        state = self._state
        if state is None:
            return None
        matcher, known = self._digest
        if matcher is not state.matcher:
            texts = "\n".join(sorted(f"{pattern.id} {pattern.digest}" for pattern in state.matcher.patterns))
            known = hashlib.sha256(texts.encode("utf-8", "surrogatepass")).hexdigest()
            self._digest = state.matcher, known
        return known

    def stop(self) -> None:
        """End the watch; what is loaded goes on answering."""
        if self._watcher is not None:
            self._watcher.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2)

    def read_file(self, path: Path) -> FileContent:
        """Read one file of the library."""
        return read_file(path, self.root)

    def _first(self) -> LibraryState:
        with self._loading:
            if self._state is None:
                state = self._update(None)
                if self._watcher is not None and not self._watcher.is_stopped:
                    name = "loom-patterns"
                    self._thread = threading.Thread(target=self._follow, args=(self._watcher,), name=name, daemon=True)
                    self._thread.start()
            else:
                state = self._state
        if self._thread is None:
            self._publish()
        return state

    def _follow(self, watcher: FileWatcher) -> None:
        self._publish()
        while not watcher.is_stopped:
            try:
                self.reload()
                if not watcher.cover(self.root):
                    watcher.wait(self.root, most_s=0.0 if self._watch_problems else LOOK_S)
                    self._watch_problems = ()  # the next round takes the problem back
            except Exception as error:  # without this thread nothing would ever be read again: report it, and go on
                self._report(error)
                watcher.pause()
        watcher.close()

    def _report(self, error: Exception) -> None:
        """Make a problem of what ended a round, once while it is the same."""
        problems = (problem_text(self.root, 1, f"the files could not be followed: {error!r}"),)
        if problems != self._watch_problems:
            log.error("the files of the pattern library could not be followed", exc_info=error)
        with self._loading:
            before, self._watch_problems = self._watch_problems, problems
            if (old := self._state) is not None:
                others = (problem for problem in old.problems if problem not in before)
                self._use(replace(old, problems=(*problems, *others)), old, began_s=time.perf_counter())
        self._publish()

    def _update(self, old: LibraryState | None) -> LibraryState:
        """Put what the files say now into use, and queue what to publish of it; the caller holds the lock."""
        began_s = time.perf_counter()
        try:
            state = self._read(old)
        except Exception as error:  # whatever is wrong with the user's files: the library that works goes on working
            matcher = old.matcher if old else Matcher(())
            usual = error.strerror if isinstance(error, OSError) else None
            reason = usual or f"the library could not be put into use: {error!r}"
            problem = problem_text(self.root, 1, reason, outcome=STAYS if matcher.patterns else "")
            problems = (problem, *self._watch_problems, *self._library.problems)
            if usual is None and (old is None or problems != old.problems):
                log.error("the pattern library could not be put into use", exc_info=error)
            state = LibraryState(matcher, problems, now_ms(), old.files if old else 0)
        return self._use(state, old, began_s=began_s)

    def _use(self, state: LibraryState, old: LibraryState | None, *, began_s: float) -> LibraryState:
        if old is not None and replace(state, loaded_ms=old.loaded_ms) == old:
            return old
        self._state = state
        was = {pattern.id: pattern.digest for pattern in old.matcher.patterns} if old else {}
        now = {pattern.id: pattern.digest for pattern in state.matcher.patterns}
        event = PatternUpdateEvent(
            added=tuple(each for each in now if each not in was),
            changed=tuple(each for each in now if was.get(each, now[each]) != now[each]),
            removed=tuple(each for each in was if each not in now),
            duration_ms=(time.perf_counter() - began_s) * 1000,
            errors=state.problems,
            patterns=len(now),
        )
        if old is None or event.added or event.changed or event.removed or state.problems != old.problems:
            self._unpublished.append(event)
        return state

    def _read(self, old: LibraryState | None) -> LibraryState:
        self._files = self._loaded_files(look(self.root))
        if self._shipped is None:  # its problems concern the developers of the package
            self._shipped = load(self._shipped_root) if self._shipped_root else Library((), ())
        self._library = library = with_shipped(merged(file.content for file in self._files.values()), self._shipped)
        before = old.matcher if old else None
        if before is not None and before.patterns == library.patterns:
            matcher = before
        else:
            matcher = Matcher(library.patterns, before, index=self._index)
        return LibraryState(matcher, (*self._watch_problems, *library.problems), now_ms(), len(self._files))

    def _loaded_files(self, marks: Mapping[Path, Mark | None]) -> "dict[Path, _LoadedFile]":
        """What each file says, the changed ones read; those in a folder that cannot be listed now stay."""
        closed = {path for path, mark in marks.items() if mark is None}
        hidden = [path for path in self._files if path not in marks and not closed.isdisjoint(path.parents)]
        loaded = {
            path: self._loaded(path, marks[path]) if path in marks else self._files[path]
            for path in sorted([*marks, *hidden])
        }
        in_use = {folder for path in hidden if loaded[path].content.patterns for folder in path.parents}
        return loaded | {path: loaded[path].staying() for path in closed & in_use}

    def _loaded(self, path: Path, mark: Mark | None) -> "_LoadedFile":
        before = self._files.get(path)
        if before is not None and mark is not None and mark == before.mark and before.is_settled:
            return before
        is_settled = mark is not None and abs(time.time_ns() - mark.mtime_ns) > SETTLED_NS
        fresh = self.read_file(path)
        if not fresh.problems:
            return _LoadedFile(mark, fresh, fresh.patterns, is_settled)
        good = before.good if before else ()
        if good:
            return _LoadedFile(mark, replace(fresh, patterns=good), good, is_settled).staying()
        return _LoadedFile(mark, fresh, good, is_settled)

    def _publish(self) -> None:
        while True:
            try:
                event = self._unpublished.popleft()
            except IndexError:
                return
            try:
                if self._listener is not None:
                    self._listener.publish(event)
                self._content.accepted(PART)
            except Exception:  # a failing listener is no reason to be without the library
                log.exception("an update of the pattern library could not be published")


@dataclass(frozen=True, slots=True)
class _LoadedFile:
    """What is known of a file."""

    mark: Mark | None
    """As it was just before it was read."""
    content: FileContent
    """The patterns in use, and the problems with what the file says now."""
    good: tuple[Pattern, ...]
    """Of the last reading without a problem."""
    is_settled: bool

    def staying(self) -> "_LoadedFile":
        problems = tuple(with_outcome(problem, STAYS) for problem in self.content.problems)
        return replace(self, content=replace(self.content, problems=problems))
