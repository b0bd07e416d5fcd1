"""Users' tool files, reloaded when they change: once an edit has settled; a broken edit leaves the former version.

No thread watches the files: code that is about to use an agent's tools asks for them, which looks at each file.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from loom_worker.core.errors import BadFile
from loom_worker.core.live_files import DIGITS, Clock, Follower, Marks, marks_of
from loom_worker.core.values.agents import Content, ContentChange
from loom_worker.core.values.tools import Tool
from loom_worker.tools import targets
from loom_worker.tools.custom import checked

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
        """Of the version in use; None if there is none."""
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
