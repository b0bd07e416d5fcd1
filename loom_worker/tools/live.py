"""Files of users' tools, followed: an edit is taken up once it has settled, a broken one leaves what was there before.

Nothing watches the files: whoever is about to use an agent's tools asks for them first, which is a look at the time of
each file's last change.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from loom_worker.core.errors import BadFile
from loom_worker.core.values.agents import Alone, Content
from loom_worker.core.values.tools import Tool
from loom_worker.tools import targets
from loom_worker.tools.custom import checked

SETTLE_S = 1.0
"""A file that was written or removed so lately may not be whole yet, or be on its way back."""
STEP_S = 0.05
"""Between two looks at a file that is waited for."""

log = logging.getLogger(__name__)

Mark = tuple[int, int, int]
"""Inode, size in bytes, time of the last change in ns."""


@dataclass(frozen=True, slots=True)
class Times:
    """What a file's age is measured with."""

    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    pause: Callable[[float], object] = time.sleep


class ToolFiles:
    """All files of tools that this process uses. Any thread may ask; a file that is slow to load holds up no other."""

    def __init__(self, times: Times | None = None, content: Content | None = None) -> None:
        """Nothing is read before it is asked for.

        Args:
            content: compares the files with those of other processes; None: nobody does.
        """
        self._times = times or Times()
        self._content = content or Alone()
        self._lock = threading.Lock()
        self._files: dict[tuple[str, Path], ToolFile] = {}

    def tools(self, target: str, folder: Path) -> tuple[Tool, ...]:
        """The tools of a target as of now; of a module as it was imported first.

        Raises:
            BadFile: they cannot be used, and never could in this process.
        """
        if targets.file_of(target, folder) is None:
            return checked(target, folder)
        file = self.file(target, folder)
        self._look(file, is_first=True)
        return file.tools()

    def stamp(self, wanted: Iterable[str], folder: Path) -> str:
        """Changes when ``tools`` would give others than before."""
        files = [self.file(target, folder) for target in wanted if targets.file_of(target, folder) is not None]
        for each in files:
            self._look(each)
        return " ".join(each.digest() or "" for each in files)

    def file(self, target: str, folder: Path) -> "ToolFile":
        """The file of a target that names one."""
        with self._lock:
            key = (target, folder)
            if key not in self._files:
                self._files[key] = ToolFile(target, folder, self._times)
                self._content.follow(self._files[key].part, self._files[key])
            return self._files[key]

    def _look(self, file: "ToolFile", *, is_first: bool = False) -> None:
        before = file.digest()
        if before is None or not is_first:
            file.look()
        if file.digest() != before:
            self._content.accepted(file.part)


class ToolFile:
    """One target's file, in the newest version of it that works."""

    def __init__(self, target: str, folder: Path, times: Times) -> None:
        """Nothing is read yet."""
        self._target, self._folder, self._times = target, folder, times
        self._path = targets.file_of(target, folder) or folder / target
        place = hashlib.sha256(str(folder).encode("utf-8", "surrogatepass")).hexdigest()[:8]
        self.part = f"tools:{place}:{target}"
        """Its name among what all processes must have alike; agents of other folders have files of the same name."""
        self._lock = threading.Lock()
        self._mark: Mark | None = None
        self._is_settled = False
        """True if the file was old enough when it was read for any later change to show in its mark."""
        self._missed_s: float | None = None
        """Monotonic time at which it was first found missing."""
        self._tools: tuple[Tool, ...] = ()
        self._digest: str | None = None
        self._problem = "not read yet"

    def tools(self) -> tuple[Tool, ...]:
        """Its tools as of the last look.

        Raises:
            BadFile: it never had any that could be used, or it is gone.
        """
        if not self._tools:
            raise BadFile(self._problem)
        return self._tools

    def digest(self) -> str | None:
        """Of the version in use; None where there is none."""
        return self._digest

    def look(self) -> None:
        """Take up what the file says if it has changed and settled; who has a version waits for nobody's loading."""
        if self._lock.acquire(blocking=not self._tools):
            try:
                self._look()
            finally:
                self._lock.release()

    def renew(self) -> None:
        """Read the file now; one that was written a moment ago is waited for, twice SETTLE_S at most."""
        end_s = self._times.clock() + 2 * SETTLE_S
        with self._lock:
            self._is_settled = False
            while not self._look() and self._times.clock() < end_s:
                self._times.pause(STEP_S)

    def _look(self) -> bool:
        """False if there may be something else to take up in a moment."""
        mark = _mark(self._path)
        if mark is None:
            return self._miss()
        self._missed_s = None
        is_settled = not 0 <= self._times.wall_clock() - mark[-1] / 1e9 < SETTLE_S
        if mark == self._mark and (self._is_settled or not is_settled):
            return True
        if self._tools and not is_settled:
            return False
        self._take(mark)
        self._is_settled = is_settled
        return True

    def _miss(self) -> bool:
        now_s = self._times.clock()
        self._missed_s = now_s if self._missed_s is None else self._missed_s
        if self._tools and now_s - self._missed_s < SETTLE_S:
            return False
        if self._tools:
            log.warning("tool file: %s is gone, and its tools with it", self._path)
        self._mark, self._tools, self._digest = None, (), None
        self._problem = f"{self._path}: there is no such file of tools"
        return True

    def _take(self, mark: Mark) -> None:
        is_known = mark == self._mark
        self._mark = mark
        try:
            source = targets.read(self._path)
            digest = targets.digest(source)
            if digest == self._digest:
                return
            tools = checked(self._target, self._folder, source)
        except BadFile as error:
            if self._tools and not (is_known and self._problem == str(error)):
                log.warning("tool file: %s; what it said before stays in use", error)
            self._problem = str(error)
            return
        if self._tools:
            log.info("tool file read anew: %s", self._path)
        self._tools, self._digest, self._problem = tools, digest, ""


def _mark(path: Path) -> Mark | None:
    try:
        told = path.stat()
    except OSError:
        return None
    return told.st_ino, told.st_size, told.st_mtime_ns
