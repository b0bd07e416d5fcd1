"""How a library notices that its files have changed: marks of the files, and events of the file system."""

import errno
import logging
import os
import stat
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from loom_worker.core.text import one_line
from loom_worker.patterns.library import MAX_PROBLEM_CHARS, library_files

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver
    from watchdog.utils import BaseThread

log = logging.getLogger(__name__)

LOOK_S = 30.0
"""The files are checked at least this often: events get lost, and some file systems have none."""
TICK_S = 2.0
"""Interval of the checks that the watch still works, and of the checks of the files where there can be no watch."""
MOST_QUIET_WAITS = 10
"""Changes that never stop are waited for during this many debounce intervals at most."""
MOST_LINKED = 16
"""Most folders outside the library that are watched because links lead to them; each needs a sleeping thread."""


class Mark(NamedTuple):
    """The state of a file (links followed): it differs once the file is written or replaced, or gets another mode."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    device: int


def look(root: Path) -> dict[Path, Mark | None]:
    """Mark every pattern file under a folder, in order; None marks what this process may not look into.

    Raises:
        OSError: the folder itself cannot be listed.
    """
    paths = library_files(root)
    if root in paths:
        os.listdir(root)  # which raises why
        raise OSError(errno.EAGAIN, "was exchanged while it was listed")
    marks: dict[Path, Mark | None] = {}
    for path in paths:
        try:
            facts = path.stat()
        except FileNotFoundError:  # deleted since it was listed
            continue
        except OSError:
            marks[path] = None
            continue
        # A folder is listed only if its own contents could not be.
        is_folder = stat.S_ISDIR(facts.st_mode)
        mark = Mark(facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino, facts.st_dev)
        marks[path] = None if is_folder else mark
    return marks


class FileWatcher:
    """Waits for changes under a folder; where the system reports none, it only waits for the next check.

    One thread covers, waits and closes; any thread may stop it. watchdog's threads sleep in the kernel until there is
    an event, so a quiet library costs nothing.
    """

    def __init__(
        self, *, debounce_ms: int, tick_s: float = TICK_S, observer: "Callable[[], BaseObserver] | None" = None
    ) -> None:
        """Watch nothing yet.

        Args:
            debounce_ms: a change counts once no other has followed for this long.
            observer: makes what listens to the system.
        """
        self.changed = threading.Event()
        """Set by another thread at each event, which may be hundreds of times for one change."""
        self._debounce_s = debounce_ms / 1000
        self._tick_s = tick_s
        self._make_observer = observer
        self._observer: BaseObserver | None = None
        self._threads: list[BaseThread] = []
        self._folders: frozenset[_Folder] = frozenset()
        self._failure = ""
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether nothing is to be waited for any more."""
        return self._is_stopped

    def stop(self) -> None:
        """Wake the waiting thread for the last time."""
        self._is_stopped = True
        self.changed.set()

    def wait(self, root: Path, *, most_s: float = LOOK_S) -> None:
        """Return when files have changed and are quiet again, or it is time to check them anyway."""
        end_s = time.monotonic() + most_s
        while not self.changed.wait(self._tick_s):
            if not self.holds(root) or time.monotonic() >= end_s:
                return
        end_s = time.monotonic() + MOST_QUIET_WAITS * self._debounce_s
        while True:
            self.changed.clear()  # before the look at the flag: stop() sets the flag first
            if self._is_stopped or time.monotonic() >= end_s or not self.changed.wait(self._debounce_s):
                return

    def pause(self) -> None:
        """Wait for the next tick, or a change."""
        self.changed.clear()  # before the look at the flag, as in ``wait``
        if not self._is_stopped:
            self.changed.wait(self._tick_s)

    def cover(self, root: Path) -> bool:
        """Watch a folder with everything in it, and the folders elsewhere that links in it lead to, as they are now.

        Returns:
            True if the watch is a new one: earlier changes were not reported.
        """
        wanted = _watched_folders(root)
        if wanted == self._folders and self._is_listening():
            return False
        self.close()
        if not wanted:
            return False
        try:
            self._listen(wanted)
        except (OSError, RuntimeError) as error:  # no inotify instance, watch or thread is left
            self.close()
            failure = f"{root}: the system does not report changes, checking every few seconds instead: {error}"
            if failure != self._failure:
                log.warning("%s", one_line(failure, MAX_PROBLEM_CHARS))
            self._failure = failure
            return False
        self._failure = ""
        return True

    def holds(self, root: Path) -> bool:
        """Whether changes in what this path leads to now are reported."""
        return self._is_listening() and _folder(root) in self._folders

    def close(self) -> None:
        """Watch nothing any more."""
        observer, self._observer, self._folders = self._observer, None, frozenset()
        if observer is not None:
            observer.stop()
            if observer.is_alive():
                observer.join()

    def _is_listening(self) -> bool:
        # A thread ends when its folder is deleted, even if another folder takes the name; a failed one reports nothing.
        return self._observer is not None and all(thread.is_alive() for thread in self._threads)

    def _listen(self, folders: "frozenset[_Folder]") -> None:
        from watchdog import events
        from watchdog.observers import Observer  # 30 ms and 3 MB, which only a process that watches pays
        from watchdog.utils import BaseThread

        # A folder that is watched twice, as those made by ``mkdir -p`` may be, is nothing to warn of.
        warnings.filterwarnings("ignore", "Callback with id .* already exists", RuntimeWarning)
        changed = self.changed

        class ChangeHandler(events.FileSystemEventHandler):
            def on_any_event(self, event: events.FileSystemEvent) -> None:
                changed.set()

        # Opening and reading are no changes: if they were reported, each check would cause the next.
        of_files = [events.FileCreatedEvent, events.FileModifiedEvent, events.FileAttribEvent, events.FileDeletedEvent]
        of_folders = [events.DirCreatedEvent, events.DirAttribEvent, events.DirDeletedEvent]
        reported = [*of_files, *of_folders, events.FileMovedEvent, events.DirMovedEvent]
        others = set(threading.enumerate())
        self._observer = observer = self._make_observer() if self._make_observer else Observer()
        observer.start()
        for folder in sorted(folders):
            observer.schedule(ChangeHandler(), folder.path, recursive=folder.is_root, event_filter=reported)
        self._threads = [each for each in threading.enumerate() if isinstance(each, BaseThread) and each not in others]
        self._folders = folders


class _Folder(NamedTuple):
    """A folder itself: another one of the same name differs."""

    path: str
    """Without links."""
    device: int
    inode: int
    is_root: bool = True


def _folder(folder: Path | str, *, is_root: bool = True) -> _Folder | None:
    path = os.path.realpath(folder)
    with suppress(OSError):
        facts = os.stat(path)
        return _Folder(path, facts.st_dev, facts.st_ino, is_root)
    return None


def _watched_folders(root: Path) -> frozenset[_Folder]:
    base = _folder(root)
    if base is None:
        return frozenset()
    files = library_files(root)
    folders = {os.path.realpath(folder) for folder in {path.parent for path in files}}
    folders |= {os.path.dirname(os.path.realpath(path)) for path in files if os.path.islink(path)}
    elsewhere = sorted(each for each in folders if not f"{each}/".startswith(f"{base.path.rstrip('/')}/"))
    linked = (_folder(folder, is_root=False) for folder in elsewhere[:MOST_LINKED])
    return frozenset([base, *(folder for folder in linked if folder is not None)])
