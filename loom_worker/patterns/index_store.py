"""Fitted indexes of a machine, kept as files: one process fits with scikit-learn, all others map the arrays.

An index is named by a digest of the patterns' texts and of the code that fits, so no process reads another's index.
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
from collections.abc import Sequence
from pathlib import Path

from loom_worker.core.isolation import process_env
from loom_worker.patterns.index import Index, Texts
from loom_worker.patterns.match import InProcess

log = logging.getLogger(__name__)

KEPT = 4
"""Most recently used indexes that are kept: of the library as it is, and as it was a few changes ago."""
FIT_S = 120.0
"""Timeout of the process that fits; the shipped library takes two seconds."""
_CODE = ("everyday.txt", "fit.py", "index.py", "synonyms.txt", "words.py", "../core/words.py")


class IndexStore:
    """The indexes in one folder, which is created with the first. Any number of processes may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def found(self, patterns: Sequence[Texts]) -> Index | None:
        folder = self._folder / _name(patterns)
        try:
            index = Index.read(folder)
            os.utime(folder)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError) as error:
            log.warning("the fitted index of the patterns cannot be read, so it is fitted again: %s", error)
            return None
        return index

    def fitted(self, patterns: Sequence[Texts]) -> Index:
        """The index, fitted by a process of its own unless it is there; in this process where that fails."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (self._folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # after a wait, what the other process wrote is there
                return self.found(patterns) or self._fit(patterns)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            log.warning("the patterns are fitted in this process, as no index could be kept: %s", error)
            return InProcess().fitted(patterns)

    def _fit(self, patterns: Sequence[Texts]) -> Index:
        """Fit in a process of its own; the index appears under its name once it is complete."""
        folder = self._folder / _name(patterns)
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
            shutil.rmtree(folder, ignore_errors=True)  # there, but could not be read
            whole.rename(folder)
        index = Index.read(folder)
        found = [each for each in self._folder.iterdir() if each.is_dir()]
        found.sort(key=lambda each: each.stat().st_mtime, reverse=True)
        for old in found[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)  # a process that has mapped it keeps its pages
        return index


def _name(patterns: Sequence[Texts]) -> str:
    digest = hashlib.sha256(json.dumps(patterns).encode())
    for name in _CODE:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()[:32]
