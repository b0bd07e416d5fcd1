"""The pattern library of a process: read again when its files change, and replaced as a whole.

What lies in the folder is the truth. Whatever fails, what was loaded last goes on answering.
"""

import errno
import hashlib
import logging
import os
import stat
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

from loom_worker.core.live_files import GRANULE_S, LOOK_S, Follower, Mark, Marks, marks_of
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.patterns import Pattern, PatternUpdateEvent
from loom_worker.patterns.events import LibraryEvents
from loom_worker.patterns.library import (
    FileContent,
    Library,
    library_files,
    load,
    merged,
    problem_text,
    read_file,
    with_outcome,
    with_shipped,
)
from loom_worker.patterns.match import IndexSource, InProcess, Matcher

log = logging.getLogger(__name__)

MOST_QUIET_WAITS = 10
"""Changes that never stop are waited for during this many debounce intervals at most."""
STAYS = "the former version stays in use"


@dataclass(frozen=True, slots=True)
class LibraryState:
    """One version of the library, whole."""

    matcher: Matcher
    problems: tuple[str, ...]
    """Why files or patterns are left out or are not those on disk, each as ``file:line: reason``."""
    loaded_ms: int
    """When, in milliseconds since 1970."""


class LiveLibrary(Follower):
    """Patterns that follow their files. Any thread may ask; only the first question waits, for the first load."""

    def __init__(
        self,
        root: Path,
        *,
        listener: LibraryEvents | None = None,
        debounce_ms: int | None = None,
        look_s: float = LOOK_S,
        index: IndexSource | None = None,
        shipped: Path | None = None,
    ) -> None:
        """Read and start nothing before the first question: a process may fork until then.

        Args:
            listener: receives every load that changed patterns or problems, the first included. What it raises is
                logged.
            debounce_ms: a thread looks at the files every ``look_s`` seconds, and a change counts once none has
                followed for this long; None: files are only read by ``reload``.
            index: where fitted indexes come from; unless given, they are fitted in this process.
            shipped: another folder whose patterns are added; read once, as it changes with the package alone.
        """
        settle_s = (debounce_ms or 0) / 1000
        super().__init__("patterns", look_s=look_s, settle_s=settle_s, most_s=MOST_QUIET_WAITS * settle_s or 1.0)
        self.root = root
        self._listener = listener
        self._is_followed = debounce_ms is not None
        self._index = index or InProcess()
        self._shipped_root = shipped
        self._shipped: Library | None = None
        self._state = LibraryState(Matcher(()), (), 0)
        self._is_loaded = self._waits_for_fit = False
        self._files: dict[Path, _LoadedFile] = {}
        self._library = Library((), ())
        self._unpublished: deque[PatternUpdateEvent] = deque()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._digest: tuple[Matcher | None, str] = None, ""

    def state(self) -> LibraryState:
        """The library as it is now."""
        if not self._is_loaded:
            self.look(is_wanted=True)
        return self._state

    def warm(self) -> None:
        """Load it with its fitted index; for a process that nobody asks yet, as others would wait for seconds."""
        self._waits_for_fit = True
        try:
            self.current().wait_fitted()
        finally:
            self._waits_for_fit = False

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
        """Read what has changed now, in this thread, settled or not; never raises for what it finds."""
        self._take_up(blocking=True, at_once=True)

    def digest(self) -> str | None:
        """The digest of all patterns in use; None before the first load."""
        matcher, (known, digest) = self._state.matcher, self._digest
        if not self._is_loaded:
            return None
        if matcher is not known:
            texts = "\n".join(sorted(f"{pattern.id} {pattern.digest}" for pattern in matcher.patterns))
            digest = hashlib.sha256(texts.encode("utf-8", "surrogatepass")).hexdigest()
            self._digest = matcher, digest
        return digest

    def stop(self) -> None:
        """Follow the files no more; what is loaded goes on answering."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2)

    def read_file(self, path: Path) -> FileContent:
        """Read one file of the library."""
        return read_file(path, self.root)

    def _follow(self) -> None:
        while not self._stopped.wait(self.wait_s()):
            try:
                self.look()
            except Exception:  # without this thread nothing would ever be read again
                log.exception("the files of the pattern library could not be followed")

    def _marks(self) -> Marks:
        try:
            return look(self.root)
        except OSError:
            return {self.root: None}

    def _read(self, marks: Marks) -> bool:
        """Put what the files say now into use, and queue what to publish of it."""
        began_s, old, is_read = time.perf_counter(), self._state, True
        try:
            state = self._loaded_state(old)
        except Exception as error:  # whatever is wrong with the user's files: the library that works goes on working
            is_read, usual = False, error.strerror if isinstance(error, OSError) else None
            reason = usual or f"the library could not be put into use: {error!r}"
            problem = problem_text(self.root, 1, reason, outcome=STAYS if old.matcher.patterns else "")
            state = replace(old, problems=(problem, *self._library.problems), loaded_ms=now_ms())
            if usual is None and state.problems != old.problems:
                log.error("the pattern library could not be put into use", exc_info=error)
        self._use(state, old, began_s=began_s)
        if self._is_followed and self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._follow, name="loom-patterns", daemon=True)
            self._thread.start()
        return is_read

    def _use(self, state: LibraryState, old: LibraryState, *, began_s: float) -> None:
        if self._is_loaded and replace(state, loaded_ms=old.loaded_ms) == old:
            return
        is_first, self._state, self._is_loaded = not self._is_loaded, state, True
        was = {pattern.id: pattern.digest for pattern in old.matcher.patterns}
        now = {pattern.id: pattern.digest for pattern in state.matcher.patterns}
        event = PatternUpdateEvent(
            added=tuple(each for each in now if each not in was),
            changed=tuple(each for each in now if was.get(each, now[each]) != now[each]),
            removed=tuple(each for each in was if each not in now),
            duration_ms=(time.perf_counter() - began_s) * 1000,
            errors=state.problems,
            patterns=len(now),
        )
        if is_first or event.added or event.changed or event.removed or state.problems != old.problems:
            self._unpublished.append(event)

    def _loaded_state(self, old: LibraryState) -> LibraryState:
        self._files = self._loaded_files(look(self.root))
        if self._shipped is None:  # its problems concern the developers of the package
            self._shipped = load(self._shipped_root) if self._shipped_root else Library((), ())
        self._library = library = with_shipped(merged(file.content for file in self._files.values()), self._shipped)
        matcher = old.matcher
        if matcher.patterns != library.patterns:
            matcher = Matcher(library.patterns, None if self._waits_for_fit else matcher, index=self._index)
        return LibraryState(matcher, library.problems, now_ms())

    def _loaded_files(self, marks: Marks) -> "dict[Path, _LoadedFile]":
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
        is_settled = mark is not None and abs(time.time_ns() - mark.mtime_ns) > GRANULE_S * 1e9
        fresh = self.read_file(path)
        if not fresh.problems:
            return _LoadedFile(mark, fresh, fresh.patterns, is_settled)
        good = before.good if before else ()
        if good:
            return _LoadedFile(mark, replace(fresh, patterns=good), good, is_settled).staying()
        return _LoadedFile(mark, fresh, good, is_settled)

    def _tell_news(self) -> None:
        while True:
            try:
                event = self._unpublished.popleft()
            except IndexError:
                return
            try:
                if self._listener is not None:
                    self._listener.publish(event)
            except Exception:  # a failing listener is no reason to be without the library
                log.exception("an update of the pattern library could not be published")


@dataclass(frozen=True, slots=True)
class _LoadedFile:
    mark: Mark | None
    """As it was just before it was read."""
    content: FileContent
    """The patterns in use, and the problems with what the file says now."""
    good: tuple[Pattern, ...]
    """Patterns of the last reading without a problem."""
    is_settled: bool

    def staying(self) -> "_LoadedFile":
        problems = tuple(with_outcome(problem, STAYS) for problem in self.content.problems)
        return replace(self, content=replace(self.content, problems=problems))


def look(root: Path) -> Marks:
    """Mark every pattern file under a folder, in order; None marks what this process may not look into.

    Raises:
        OSError: the folder itself cannot be listed.
    """
    paths = library_files(root)
    if root in paths:
        os.listdir(root)  # which raises why
        raise OSError(errno.EAGAIN, "was exchanged while it was listed")
    # A folder is listed only if its own contents could not be.
    return {path: mark if mark and not stat.S_ISDIR(mark.mode) else None for path, mark in marks_of(paths).items()}
