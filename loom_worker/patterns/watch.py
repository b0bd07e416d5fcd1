"""Seeing that the files of a library have changed: what lies there now, and events that say when to look."""

import errno
import logging
import os
import stat
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from loom_worker.core.text import one_line
from loom_worker.patterns.library import COMPLAINT_CHARS, library_files

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers.api import BaseObserver
    from watchdog.utils import BaseThread

log = logging.getLogger(__name__)

MOST_LINKED = 16
"""Folders outside the library that are watched because links lead to them; each takes a thread that sleeps."""


class Mark(NamedTuple):
    """Of a file, links followed: another one as soon as it was written, replaced, or may be read by others."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    device: int


def look(root: Path) -> dict[Path, Mark | None]:
    """All pattern files under a folder, in order; None marks a file or a folder that this process may not look into.

    Raises:
        OSError: the folder itself cannot be listed.
    """
    paths = library_files(root)
    if root in paths:
        os.listdir(root)  # which raises why
        raise OSError(errno.EAGAIN, "was exchanged while it was listed")
    marks: dict[Path, Mark | None] = {}
    for path in paths:
        with suppress(FileNotFoundError):  # since it was listed
            marks[path] = _mark(path)
    return marks


class Watch:
    """Calls back whenever something happens under a folder; where the system cannot tell, it says so. For one thread.

    watchdog's threads sleep in the kernel until there is an event, so that a quiet library costs nothing.
    """

    def __init__(self, wake: Callable[[], object], *, observer: "Callable[[], BaseObserver] | None" = None) -> None:
        """Watch nothing yet.

        Args:
            wake: called in another thread, maybe hundreds of times for one change; must be quick.
            observer: makes what listens to the system.
        """
        self._wake = wake
        self._make = observer or _observer
        self._observer: BaseObserver | None = None
        self._threads: list[BaseThread] = []
        self._places: frozenset[_Place] = frozenset()
        self._trouble = ""

    def cover(self, root: Path) -> bool:
        """Watch a folder with all in it, and the folders elsewhere that links in it lead to, as they are now.

        Returns:
            True if the watch is a new one: of what changed before nobody has told.
        """
        wanted = _places(root)
        if wanted == self._places and self._hears():
            return False
        self.close()
        if not wanted:
            return False
        try:
            self._listen(wanted)
        except (OSError, RuntimeError) as error:  # no inotify instance, watch or thread is left
            self.close()
            self._tell(f"{root}: the system does not tell of changes, looking every few seconds instead: {error}")
            return False
        self._tell("")
        return True

    def holds(self, root: Path) -> bool:
        """True while changes in what this path leads to now are told of."""
        return self._hears() and _place(root) in self._places

    def close(self) -> None:
        """Watch nothing any more."""
        observer, self._observer, self._places = self._observer, None, frozenset()
        if observer is not None:
            observer.stop()
            if observer.is_alive():
                observer.join()

    def _hears(self) -> bool:
        # One ends when its folder is deleted, even if another folder takes the name; one that failed tells nobody.
        return self._observer is not None and all(thread.is_alive() for thread in self._threads)

    def _listen(self, places: "frozenset[_Place]") -> None:
        from watchdog.utils import BaseThread

        # A folder that is watched twice, as those made by ``mkdir -p`` may be, is nothing to warn of.
        warnings.filterwarnings("ignore", "Callback with id .* already exists", RuntimeWarning)
        handler, heard = _handler(self._wake)
        others = set(threading.enumerate())
        self._observer = observer = self._make()
        observer.start()
        for place in sorted(places):
            observer.schedule(handler, place.path, recursive=place.is_root, event_filter=heard)
        self._threads = [each for each in threading.enumerate() if isinstance(each, BaseThread) and each not in others]
        self._places = places

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.warning("%s", one_line(trouble, COMPLAINT_CHARS))
        self._trouble = trouble


class _Place(NamedTuple):
    """A folder as it is: another one of the same name is another place."""

    path: str
    """Without links."""
    device: int
    inode: int
    is_root: bool = True


def _observer() -> "BaseObserver":
    from watchdog.observers import Observer  # 30 ms and 3 MB, which only a process that watches pays

    return Observer()


def _handler(wake: Callable[[], object]) -> "tuple[FileSystemEventHandler, list[type[FileSystemEvent]]]":
    """What calls back whatever the event says, and the events it is for."""
    from watchdog import events

    class ChangeHandler(events.FileSystemEventHandler):
        """Rings."""

        def on_any_event(self, event: events.FileSystemEvent) -> None:
            wake()

    # Opening and reading are no changes: if they were told of, each look would cause the next.
    files = [events.FileCreatedEvent, events.FileModifiedEvent, events.FileAttribEvent, events.FileDeletedEvent]
    folders = [events.DirCreatedEvent, events.DirAttribEvent, events.DirDeletedEvent]
    return ChangeHandler(), [*files, *folders, events.FileMovedEvent, events.DirMovedEvent]


def _place(folder: Path | str, *, is_root: bool = True) -> _Place | None:
    path = os.path.realpath(folder)
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return _Place(path, facts.st_dev, facts.st_ino, is_root)


def _places(root: Path) -> frozenset[_Place]:
    base = _place(root)
    if base is None:
        return frozenset()
    files = library_files(root)
    folders = {os.path.realpath(folder) for folder in {path.parent for path in files}}
    folders |= {os.path.dirname(os.path.realpath(path)) for path in files if os.path.islink(path)}
    elsewhere = sorted(each for each in folders if not f"{each}/".startswith(f"{base.path.rstrip('/')}/"))
    linked = (_place(folder, is_root=False) for folder in elsewhere[:MOST_LINKED])
    return frozenset([base, *(place for place in linked if place is not None)])


def _mark(path: Path) -> Mark | None:
    try:
        facts = path.stat()
    except FileNotFoundError:
        raise
    except OSError:
        return None
    if stat.S_ISDIR(facts.st_mode):  # listed only because what is in it could not be
        return None
    return Mark(facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino, facts.st_dev)
