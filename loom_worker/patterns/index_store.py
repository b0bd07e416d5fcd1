"""Fitted indexes of a machine, kept as files: one process fits with scikit-learn, all others map the arrays.

An index is named by the patterns' texts and by the code that fits, so no process reads one that is not its own.
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from loom_worker.core.isolation import process_env
from loom_worker.patterns.index import Index, Texts
from loom_worker.patterns.match import InProcess

log = logging.getLogger(__name__)

KEPT = 4
"""Indexes that stay, those used last: the library as it is, and as it was a few changes ago."""
FIT_S = 120.0
"""For the process that fits; the shipped library takes it two seconds."""
_CODE = ("fit.py", "index.py", "related.py", "words.py")


class IndexStore:
    """The indexes in one folder, which is made when the first is fitted. Any number of processes may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def found(self, patterns: Sequence[Texts]) -> Index | None:
        """The index of patterns that say this, if it is there."""
        place = self._folder / _name(patterns)
        try:
            index = Index.read(place)
            os.utime(place)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError) as error:
            log.warning("the fitted index of the patterns cannot be read, so it is fitted anew: %s", error)
            return None
        return index

    def fitted(self, patterns: Sequence[Texts]) -> Index:
        """The index, fitted by a process of its own unless it is there; in this process where that fails."""
        try:
            with self._alone():
                return self.found(patterns) or self._fit(patterns)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            log.warning("the patterns are fitted in this process, as no index could be kept: %s", error)
            return InProcess().fitted(patterns)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While no other process fits; whoever waited finds what that one wrote."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _fit(self, patterns: Sequence[Texts]) -> Index:
        place = self._folder / _name(patterns)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="new-", ignore_cleanup_errors=True) as made:
            whole = Path(made) / "index"
            whole.mkdir()
            subprocess.run(
                [sys.executable, "-P", "-m", "loom_worker.patterns.fit", str(whole)],
                input=json.dumps(patterns).encode(),
                env=process_env.inherited(os.environ),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=FIT_S,
                check=True,
            )
            shutil.rmtree(place, ignore_errors=True)  # there, but could not be read
            whole.rename(place)
        index = Index.read(place)
        self._tidy()
        return index

    def _tidy(self) -> None:
        """Remove all but the newest; who maps one of them keeps its pages."""
        there = [each for each in self._folder.iterdir() if each.is_dir()]
        there.sort(key=lambda each: each.stat().st_mtime, reverse=True)
        for old in there[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)


def _name(patterns: Sequence[Texts]) -> str:
    told = hashlib.sha256(json.dumps(patterns).encode())
    for name in _CODE:
        told.update((Path(__file__).parent / name).read_bytes())
    return told.hexdigest()[:32]
