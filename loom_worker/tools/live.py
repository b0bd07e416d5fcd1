"""Users' tool files, reloaded when they change: once an edit has settled; a broken edit leaves the former version.

No thread watches the files: code that is about to use an agent's tools asks for them, which checks each file's time of
modification.
"""

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from loom_worker.core.errors import BadFile
from loom_worker.core.values.agents import Alone, Content, ContentChange
from loom_worker.core.values.tools import Tool
from loom_worker.tools import targets
from loom_worker.tools.custom import checked

SETTLE_S = 1.0
"""A file written so recently may be incomplete; one removed so recently may come back."""
STEP_S = 0.05
"""Between two checks of a file that is being waited for."""
DIGITS = 12
"""Of a digest that are told."""

log = logging.getLogger(__name__)

Mark = tuple[int, int, int]
"""Inode, size in bytes, time of the last modification in ns."""


class Clock(Protocol):
    """What is used of the module ``time``."""

    def monotonic(self) -> float:
        """Seconds since any point; never goes back."""

    def time(self) -> float:
        """Seconds since the epoch."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


class ToolFiles:
    """All tool files of this process. Any thread may ask; a file that is slow to load does not delay the others."""

    def __init__(self, clock: Clock = time, content: Content | None = None) -> None:
        """Read nothing yet.

        Args:
            content: compares the files with those of other processes; None compares nothing.
        """
        self._clock = clock
        self._content = content or Alone()
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
        self._look(file, is_first=True)
        return file.tools()

    def stamp(self, wanted: Iterable[str], folder: Path) -> str:
        """Changes whenever the result of ``tools`` would change."""
        files = [self.file(target, folder) for target in wanted if targets.file_of(target, folder) is not None]
        for each in files:
            self._look(each)
        return " ".join(each.digest() or "" for each in files)

    def file(self, target: str, folder: Path) -> "ToolFile":
        """The file that a target names."""
        with self._lock:
            key = (target, folder)
            if key not in self._files:
                self._files[key] = ToolFile(target, folder, self._clock)
                self._content.follow(self._files[key].part, self._files[key])
            return self._files[key]

    def _look(self, file: "ToolFile", *, is_first: bool = False) -> None:
        before = file.digest()
        if before is None or not is_first:
            file.look()
        if file.digest() != before:
            self._content.accepted(file.part)
        with suppress(IndexError):  # another thread tells the rest
            while True:
                self._content.tell(file.news.popleft())


class ToolFile:
    """One target's file, in its newest working version."""

    def __init__(self, target: str, folder: Path, clock: Clock) -> None:
        """Read nothing yet."""
        self._target, self._folder, self._clock = target, folder, clock
        self._path = targets.file_of(target, folder) or folder / target
        place = hashlib.sha256(str(folder).encode("utf-8", "surrogatepass")).hexdigest()[:8]
        self.part = f"tools:{place}:{target}"
        """Its name among the content that all processes share; other folders may have files of the same name."""
        self._lock = threading.Lock()
        self._mark: Mark | None = None
        self._is_settled = False
        """True if the file was old enough when it was read that any later change shows in its mark."""
        self._missed_s: float | None = None
        """Monotonic time at which it was first found to be missing."""
        self._tools: tuple[Tool, ...] = ()
        self._digest: str | None = None
        self._problem = "not read yet"
        self.news: deque[ContentChange] = deque()
        """Edits that were noticed and not told yet."""

    def tools(self) -> tuple[Tool, ...]:
        """Its tools as of the last check.

        Raises:
            BadFile: it never had a usable version, or it is gone.
        """
        if not self._tools:
            raise BadFile(self._problem)
        return self._tools

    def digest(self) -> str | None:
        """Of the version in use; None if there is none."""
        return self._digest

    def look(self) -> None:
        """Reload the file if it has changed and settled; only the first version waits for another thread's loading."""
        if self._lock.acquire(blocking=not self._tools):
            try:
                self._look()
            finally:
                self._lock.release()

    def renew(self) -> None:
        """Reload the file now; wait at most twice SETTLE_S for one that was just written."""
        end_s = self._clock.monotonic() + 2 * SETTLE_S
        with self._lock:
            self._is_settled = False
            while not self._look() and self._clock.monotonic() < end_s:
                self._clock.sleep(STEP_S)

    def _look(self) -> bool:
        """False if there may be something new to load in a moment."""
        try:
            status = self._path.stat()
        except OSError:
            return self._is_gone()
        mark = status.st_ino, status.st_size, status.st_mtime_ns
        self._missed_s = None
        is_settled = not 0 <= self._clock.time() - mark[-1] / 1e9 < SETTLE_S
        if mark == self._mark and (self._is_settled or not is_settled):
            return True
        if self._tools and not is_settled:
            return False
        self._load(mark)
        self._is_settled = is_settled
        return True

    def _is_gone(self) -> bool:
        now_s = self._clock.monotonic()
        self._missed_s = now_s if self._missed_s is None else self._missed_s
        if self._tools and now_s - self._missed_s < SETTLE_S:
            return False
        if self._tools:
            log.warning("tool file: %s is gone, and so are its tools", self._path)
        self._mark, self._tools, self._digest = None, (), None
        self._problem = f"{self._path}: there is no such file of tools"
        return True

    def _load(self, mark: Mark) -> None:
        is_known, stamp = mark == self._mark, f"{mark[1]}:{mark[2]}"
        self._mark = mark
        try:
            source = targets.read(self._path)
            digest = targets.digest(source)
            if digest == self._digest:
                return
            tools = checked(self._target, self._folder, source)
        except BadFile as error:
            if self._tools and not (is_known and self._problem == str(error)):
                log.warning("tool file: %s; the former version stays in use", error)
                self.news.append(ContentChange("tool", str(self._path), "refused", stamp, str(error)))
            self._problem = str(error)
            return
        if self._tools:
            log.info("tool file reloaded: %s", self._path)
            former = (self._digest or "")[:DIGITS]
            self.news.append(ContentChange("tool", str(self._path), "updated", stamp, digest[:DIGITS], former))
        self._tools, self._digest, self._problem = tools, digest, ""
