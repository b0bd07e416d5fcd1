"""Measure hot reload: `python -m bench.reload [--quick]`. One JSON line a figure.

From the rename of a changed file to its pattern being live in a process that follows its files, with the debounce that
is usual and without any, for the shipped library and for larger ones. The system this one is modelled on told of 89 ms
(p50) to 143 ms (p99) for 59 patterns.
"""

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.matching_speed import fitted_behind
from bench.stats import percentile
from loom_worker.core.settings import PatternSettings
from loom_worker.core.values.patterns import PatternUpdateEvent
from loom_worker.patterns.index_store import IndexStore
from loom_worker.patterns.library import library_files, load, packaged_root
from loom_worker.patterns.live import LiveLibrary

CHANGES, QUICK_CHANGES = 50, 10
SIZES, QUICK_SIZES = (160, 5_000), (160,)
FILES = 160
PER_FILE = 32
"""Patterns of a file in the libraries that are made up; the largest has 157 files."""
TOLD = {"p50": 89.0, "p99": 143.0}
WAIT_S = 30.0


def main() -> None:
    """All libraries, with and without debounce."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer changes, no large library")
    is_quick = parser.parse_args().quick
    reading()
    for size in (None, *(QUICK_SIZES if is_quick else SIZES)):
        for debounce_ms in (0, PatternSettings().debounce_ms):
            with folder(size) as root:
                measure(root, debounce_ms=debounce_ms, changes=QUICK_CHANGES if is_quick else CHANGES)


def reading() -> None:
    """How long it takes to read 160 of the shipped files, some of them twice, without an index; the best of five."""
    shipped = sorted(packaged_root().rglob("*.yaml"))
    with tempfile.TemporaryDirectory() as place:
        for number in range(FILES):
            path = Path(place) / f"library{number}" / "file.yaml"
            path.parent.mkdir()
            shutil.copy(shipped[number % len(shipped)], path)
        taken_ms = []
        for _ in range(5):
            began_s = time.perf_counter()
            found = load(Path(place))
            taken_ms.append((time.perf_counter() - began_s) * 1000)
        told = {
            "patterns": len(found.patterns),
            "bytes": sum(path.stat().st_size for path in Path(place).rglob("*.yaml")),
        }
    figure(f"reading {FILES} files", min(taken_ms), "ms", **told)


def measure(root: Path, *, debounce_ms: int, changes: int) -> None:
    """Change one file so many times, and print how long each took to be live."""
    seen = Seen()
    index = IndexStore(root.with_name("index"))  # as Loom's processes have it
    library = LiveLibrary(root, listener=seen, debounce_ms=debounce_ms, index=index)
    began_s = time.perf_counter()
    library.state()
    told = {"patterns": len(library.ids()), "files": len(library_files(root)), "debounce_ms": debounce_ms}
    figure("load at first", (time.perf_counter() - began_s) * 1000, "ms", **told)
    seen.wait()
    time.sleep(0.5)  # the watch is put up behind the first answer
    path = sorted(root.rglob("*.yaml"))[0]
    text, live_ms, busy_ms = path.read_text(), [], []
    for number in range(changes):
        began_s = exchange(path, f"{text.rstrip()}\n# change {number}\n".replace("title: ", f"title: {number} ", 1))
        event = seen.wait()
        live_ms.append((seen.at_s - began_s) * 1000)
        busy_ms.append(event.duration_ms)
        time.sleep(0.05)
    library.stop()
    fitted_behind()
    for share in (50, 99):
        past = {"told_elsewhere_ms": TOLD[f"p{share}"]}
        figure(f"rename to live, p{share}", percentile(live_ms, share), "ms", **told, **past)
        figure(f"reading and indexing of that, p{share}", percentile(busy_ms, share), "ms", **told)


class Seen:
    """The latest event, and when it came."""

    def __init__(self) -> None:
        self.at_s = 0.0
        self._event: PatternUpdateEvent | None = None
        self._came = threading.Event()

    def publish(self, event: PatternUpdateEvent) -> None:
        self.at_s, self._event = time.perf_counter(), event
        self._came.set()

    def wait(self) -> PatternUpdateEvent:
        """The next one."""
        came = self._came.wait(WAIT_S)
        self._came.clear()
        if not came or self._event is None or self._event.errors:
            raise SystemExit(f"no change, or a wrong one, went live: {self._event}")
        return self._event


def exchange(path: Path, text: str) -> float:
    """Put another file in its place; the moment of the rename."""
    other = path.with_name(".other")
    other.write_text(text)
    began_s = time.perf_counter()
    os.rename(other, path)
    return began_s


@contextmanager
def folder(size: int | None) -> Iterator[Path]:
    """A library of its own: the shipped one, or one of so many patterns made of its texts."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "library"
        if size is None:
            shutil.copytree(packaged_root(), root)
        else:
            make(root, size)
        for path in root.rglob("*.yaml"):
            os.utime(path, (1, 1))
        yield root


def make(root: Path, size: int) -> None:
    """So many patterns, whose words are those of the shipped ones."""
    words = " ".join(path.read_text() for path in sorted(packaged_root().rglob("*.yaml")))
    texts = [word for word in words.split() if word.isalpha()]
    for start in range(0, size, PER_FILE):
        path = root / f"library{start // PER_FILE % 11}" / f"file{start}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        numbers = range(start, min(start + PER_FILE, size))
        path.write_text("---\n".join(pattern(number, texts) for number in numbers))


def pattern(number: int, words: list[str]) -> str:
    """As long as a usual one: some 120 words."""
    drawn = [words[(number * 7919 + n * 104_729) % len(words)] for n in range(120)]
    lists = {"intents": [drawn[n : n + 6] for n in (0, 6, 12, 18, 24)], "use_cases": [drawn[30:42], drawn[42:54]]}
    lines = [f"name: p{number}", f"title: {' '.join(drawn[54:60])}", "category: made"]
    lines.append(f"description: {' '.join(drawn[60:])}")
    lines += [f"{key}: [{', '.join(' '.join(each) for each in value)}]" for key, value in lists.items()]
    return "\n".join(lines) + "\n"


def figure(name: str, value: float, unit: str, **more: object) -> None:
    """Print one."""
    print(json.dumps({"figure": name, "value": round(value, 2), "unit": unit, **more}), flush=True)


if __name__ == "__main__":
    main()
