"""The pattern library of a process, kept as its files are: read when they change, swapped as a whole.

What lies in the folder is the truth; events of the file system only say that it is time to look. Whatever fails, what
was loaded last goes on answering.
"""

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.patterns import Pattern, PatternUpdateEvent
from loom_worker.patterns.library import (
    FileContent,
    Library,
    complaint,
    load,
    merged,
    read_file,
    with_outcome,
    with_shipped,
)
from loom_worker.patterns.match import Matcher
from loom_worker.patterns.watch import Mark, Watch, look

log = logging.getLogger(__name__)

LOOK_S = 30.0
"""The files are looked at this often whatever the system tells: events get lost, and some file systems have none."""
TICK_S = 2.0
"""How often it is made sure that the watch still holds, and the files are looked at where there can be none."""
MOST_QUIET_WAITS = 10
"""Changes that do not end are waited out for so many times the debounce."""
SETTLED_NS = 2_000_000_000
"""A file that was written less than this before it was read is read once more at the next look: the clocks of file
systems tick as slowly as every two seconds, and a second change within a tick leaves no mark."""
STAYS = "what it said before stays in use"


@dataclass(frozen=True, slots=True)
class State:
    """One version of the library, whole."""

    matcher: Matcher
    problems: tuple[str, ...]
    """Why files or patterns are left out or are not those on disk, each as ``file:line: reason``."""
    loaded_ms: int
    """When, in milliseconds since 1970."""
    files: int


@dataclass(frozen=True, slots=True)
class Means:
    """What files are read, indexed and watched with."""

    read: Callable[[Path, Path], FileContent] = read_file
    index: Callable[[Iterable[Pattern], Matcher | None], Matcher] = Matcher
    watch: Callable[[Callable[[], object]], Watch] = Watch
    tick_s: float = TICK_S


class LiveLibrary:
    """Patterns that follow their files. Any thread may ask; only the first question waits, for the first load."""

    def __init__(
        self,
        root: Path,
        *,
        debounce_ms: int,
        on_update: Callable[[PatternUpdateEvent], None],
        watches: bool = True,
        means: Means | None = None,
        shipped: Path | None = None,
    ) -> None:
        """Nothing is read or started before the first question: a process may fork until then.

        Args:
            debounce_ms: changes are read once none has followed for so long.
            on_update: told of every load that changed patterns or complaints, the first included; without any lock
                held, and by the watching thread where there is one. What it raises is logged.
            watches: False: files are only looked at by ``reload``.
            shipped: another folder whose patterns are added; read once, as it changes with the package alone.
        """
        self.root = root
        self._debounce_s = debounce_ms / 1000
        self._on_update = on_update
        self._watches = watches
        self._means = means or Means()
        self._shipped_root = shipped
        self._shipped: Library | None = None
        self._state: State | None = None
        self._files: dict[Path, _Kept] = {}
        self._library = Library((), ())
        self._trouble: tuple[str, ...] = ()
        self._loading = threading.Lock()
        self._untold: deque[PatternUpdateEvent] = deque()
        self._wake = threading.Event()
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._digest: tuple[Matcher | None, str] = None, ""

    def state(self) -> State:
        """The library as it is now."""
        return self._state or self._first()

    def current(self) -> Matcher:
        """The index as it is now; one that was taken stays as it is."""
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
        """Look at the files now, in this thread, and read what has changed; never raises for what it finds."""
        if self._state is None:
            self._first()
            return
        with self._loading:
            self._renew(self._state)
        self._tell()

    def renew(self) -> None:
        """As ``reload``, for those who compare this library with that of other processes."""
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
        self._is_stopped = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2)

    def _first(self) -> State:
        with self._loading:
            if self._state is None:
                state = self._renew(None)
                if self._watches and not self._is_stopped:
                    self._thread = threading.Thread(target=self._follow, name="loom-patterns", daemon=True)
                    self._thread.start()
            else:
                state = self._state
        if self._thread is None:
            self._tell()
        return state

    def _follow(self) -> None:
        self._tell()
        watch = self._means.watch(self._wake.set)
        while not self._is_stopped:
            try:
                self._go_round(watch)
            except Exception as error:  # without this thread nothing would ever be read again: tell it, and try anew
                self._stumble(error)
        watch.close()

    def _go_round(self, watch: Watch) -> None:
        self.reload()
        if not watch.cover(self.root):
            self._rest(watch)
            self._trouble = ()  # the next round takes the complaint back

    def _stumble(self, error: Exception) -> None:
        """Tell of what ended a round, once while it is the same, and wait for the next tick."""
        trouble = (complaint(self.root, 1, f"the files could not be followed: {error!r}"),)
        if trouble != self._trouble:
            log.error("the files of the pattern library could not be followed", exc_info=error)
        with self._loading:
            before, self._trouble = self._trouble, trouble
            if (old := self._state) is not None:
                others = (problem for problem in old.problems if problem not in before)
                self._use(replace(old, problems=(*trouble, *others)), old, began_s=time.perf_counter())
        self._tell()
        self._wake.clear()  # before the look at the flag, as in _settle
        if not self._is_stopped:
            self._wake.wait(self._means.tick_s)

    def _rest(self, watch: Watch) -> None:
        """Return when the files have changed and are quiet again, or it is time to look anyway."""
        end_s = time.monotonic() + LOOK_S
        while not self._wake.wait(self._means.tick_s):
            if not watch.holds(self.root) or self._trouble or time.monotonic() >= end_s:
                return
        self._settle()

    def _settle(self) -> None:
        end_s = time.monotonic() + MOST_QUIET_WAITS * self._debounce_s
        while True:
            self._wake.clear()  # before the look at the flag: stop() sets the flag first
            if self._is_stopped or time.monotonic() >= end_s or not self._wake.wait(self._debounce_s):
                return

    def _renew(self, old: State | None) -> State:
        """Put what the files say now into use and note what to tell of it; the caller holds the lock."""
        began_s = time.perf_counter()
        try:
            state = self._read(old)
        except Exception as error:  # whatever trips over the user's files: the library that works goes on working
            state = self._as_before(old, error)
        return self._use(state, old, began_s=began_s)

    def _use(self, state: State, old: State | None, *, began_s: float) -> State:
        if old is not None and replace(state, loaded_ms=old.loaded_ms) == old:
            return old
        self._state = state
        event = _event(old, state, duration_ms=(time.perf_counter() - began_s) * 1000)
        if old is None or event.added or event.changed or event.removed or state.problems != old.problems:
            self._untold.append(event)
        return state

    def _read(self, old: State | None) -> State:
        self._files = self._refreshed(look(self.root))
        self._library = library = with_shipped(merged(kept.content for kept in self._files.values()), self._added())
        before = old.matcher if old else None
        if before is not None and before.patterns == library.patterns:
            matcher = before
        else:
            matcher = self._means.index(library.patterns, before)
        return State(matcher, (*self._trouble, *library.problems), now_ms(), len(self._files))

    def _added(self) -> Library:
        """The patterns of the shipped library; its complaints are for who made the package."""
        if self._shipped is None:
            self._shipped = load(self._shipped_root) if self._shipped_root else Library((), ())
        return self._shipped

    def _as_before(self, old: State | None, error: Exception) -> State:
        matcher = old.matcher if old else Matcher(())
        usual = error.strerror if isinstance(error, OSError) else None
        reason = usual or f"the library could not be put into use: {error!r}"
        problem = complaint(self.root, 1, reason, outcome=STAYS if matcher.patterns else "")
        problems = (problem, *self._trouble, *self._library.problems)
        if usual is None and (old is None or problems != old.problems):
            log.error("the pattern library could not be put into use", exc_info=error)
        return State(matcher, problems, now_ms(), old.files if old else 0)

    def _refreshed(self, marks: Mapping[Path, Mark | None]) -> "dict[Path, _Kept]":
        """What each file says, the changed ones read; those in a folder that cannot be listed now stay."""
        closed = {path for path, mark in marks.items() if mark is None}
        hidden = [path for path in self._files if path not in marks and not closed.isdisjoint(path.parents)]
        kept = {
            path: self._kept(path, marks[path]) if path in marks else self._files[path]
            for path in sorted([*marks, *hidden])
        }
        in_use = {folder for path in hidden if kept[path].content.patterns for folder in path.parents}
        return kept | {path: _staying(kept[path]) for path in closed & in_use}

    def _kept(self, path: Path, mark: Mark | None) -> "_Kept":
        before = self._files.get(path)
        if before is not None and mark is not None and mark == before.mark and before.is_settled:
            return before
        is_settled = mark is not None and abs(time.time_ns() - mark.mtime_ns) > SETTLED_NS
        fresh = self._means.read(path, self.root)
        if not fresh.problems:
            return _Kept(mark, fresh, fresh.patterns, is_settled)
        good = before.good if before else ()
        if good:
            return _staying(_Kept(mark, replace(fresh, patterns=good), good, is_settled))
        return _Kept(mark, fresh, good, is_settled)

    def _tell(self) -> None:
        while True:
            try:
                event = self._untold.popleft()
            except IndexError:
                return
            try:
                self._on_update(event)
            except Exception:  # the news of a library are no reason to be without it
                log.exception("an update of the pattern library could not be told")


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is known of a file."""

    mark: Mark | None
    """As it was just before it was read."""
    content: FileContent
    """The patterns in use, and the complaints about what the file says now."""
    good: tuple[Pattern, ...]
    """Of the last reading without a complaint."""
    is_settled: bool


def _staying(kept: _Kept) -> _Kept:
    problems = tuple(with_outcome(problem, STAYS) for problem in kept.content.problems)
    return replace(kept, content=replace(kept.content, problems=problems))


def _event(old: State | None, new: State, *, duration_ms: float) -> PatternUpdateEvent:
    was = {pattern.id: pattern.digest for pattern in old.matcher.patterns} if old else {}
    now = {pattern.id: pattern.digest for pattern in new.matcher.patterns}
    return PatternUpdateEvent(
        added=tuple(each for each in now if each not in was),
        changed=tuple(each for each in now if was.get(each, now[each]) != now[each]),
        removed=tuple(each for each in was if each not in now),
        duration_ms=duration_ms,
        errors=new.problems,
        patterns=len(now),
    )
