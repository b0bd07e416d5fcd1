"""The patterns that ship with Loom and an index over them, made once a process: neither ever changes."""

from functools import cache
from pathlib import Path

from loom_worker.patterns.index_store import IndexStore
from loom_worker.patterns.library import Library, load, packaged_root
from loom_worker.patterns.match import Matcher

_folders: list[Path] = []


def keep_indexes_in(folder: Path) -> None:
    """Name the folder for the fitted indexes of this test run, which all its processes share: fitting takes seconds."""
    _folders[:] = [folder]


def index_folder() -> Path:
    """The folder that holds the fitted indexes of this test run."""
    return _folders[0]


def share_index(home: Path) -> None:
    """Let a home that nobody uses yet have the fitted indexes of this test run; outside of one it gets its own."""
    own = home / "pattern_index"
    if _folders and not own.is_symlink():
        index_folder().mkdir(exist_ok=True)
        own.symlink_to(index_folder())


@cache
def shipped() -> Library:
    """Every file of the packaged library, as it is read."""
    return load(packaged_root())


@cache
def shipped_matcher() -> Matcher:
    """An index over all of them; only a running test may ask for it."""
    return Matcher(shipped().patterns, index=IndexStore(index_folder()))
