"""Files of patterns, and what a live library reads and tells of them."""

import itertools
import os
import queue
import threading
from pathlib import Path
from typing import Any

from loom_worker.core.values.patterns import PatternUpdateEvent
from loom_worker.patterns.library import FileContent
from loom_worker.patterns.live import LiveLibrary

BROKEN = "name: [\n"
WAIT_S = 10.0
_ticks = itertools.count(1)


def text(name: str, title: str = "A title") -> str:
    return f"name: {name}\ntitle: {title}\ncategory: sales\nintents: [monthly revenue by {name}]\n"


def put(path: Path, content: str) -> Path:
    """Write a file, then date it back: one written just now would be read twice."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (next(_ticks),) * 2)
    return path


def exchange(path: Path, content: str) -> None:
    """Put another file in its place, at once."""
    os.rename(put(path.with_name(".new"), content), path)


class Told:
    """Receives what a library publishes."""

    def __init__(self) -> None:
        self.events: queue.Queue[PatternUpdateEvent] = queue.Queue()

    def publish(self, event: PatternUpdateEvent) -> None:
        self.events.put(event)

    def next(self) -> PatternUpdateEvent:
        return self.events.get(timeout=WAIT_S)

    def changes(self) -> tuple[tuple[str, ...], ...]:
        event = self.next()
        return event.added, event.changed, event.removed

    def nothing(self) -> bool:
        return self.events.empty()


class RecordingLibrary(LiveLibrary):
    """A library that knows which files it has read."""

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(root, **options)
        self.read: list[str] = []

    def read_file(self, path: Path) -> FileContent:
        self.read.append(path.relative_to(self.root).as_posix())
        return super().read_file(path)

    def since(self) -> list[str]:
        read, self.read = self.read, []
        return read


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "loom-patterns"]


def three_files(folder: Path) -> Path:
    """A library of them, in a folder of its own."""
    put(folder / "library" / "sql" / "a.yaml", text("a"))
    put(folder / "library" / "sql" / "b.yaml", text("b"))
    put(folder / "library" / "text" / "c.yaml", text("c"))
    return folder / "library"
