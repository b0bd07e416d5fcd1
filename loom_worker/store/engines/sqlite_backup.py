"""Copies the database while others write to it. The copy gets its name once it is complete, checked and on disk."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from loom_worker.core.errors import BadFile, Conflict, LoomError, Unavailable
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store.engines.engine import Backup
from loom_worker.store.engines.sqlite_file import BESIDE, FULL, damage, failure_of, file_error, reading


def back_up(source: Path, target: Path, *, may_replace: bool) -> Backup:
    """Copy the database as it is at one moment; a file at ``target`` is replaced in one step or left as it was.

    The copy is a single file, not in WAL mode, that only its owner can read.

    Args:
        may_replace: replace a file that exists.

    Raises:
        Conflict: the target exists, or is the database itself.
        BadFile: the source is not an undamaged database of Loom.
        Unavailable: the disk is full, or the source is locked.
        LoomError: the target cannot be written.
    """
    target = target.resolve()
    _refuse(source, target, may_replace=may_replace)
    with _draft_of(target) as draft:
        _copy(source, draft)
        turns = _check(source, draft)
        _sync(draft)
        _refuse(source, target, may_replace=may_replace)
        draft.replace(target)
        _sync(target.parent)
    return Backup(target, target.stat().st_size, turns)


def _refuse(source: Path, target: Path, *, may_replace: bool) -> None:
    live = [source.resolve(), *(source.resolve().with_name(source.resolve().name + end) for end in BESIDE)]
    if target in live or (target.exists() and source.exists() and target.samefile(source)):
        raise Conflict(f"{target} belongs to the database itself; name another file")
    if target.exists() and not target.is_file():
        raise Conflict(f"{target} is not a file; name another")
    if target.exists() and not may_replace:
        raise Conflict(f"{target} exists; name another file, or replace it with --force")


@contextmanager
def _draft_of(target: Path) -> Iterator[Path]:
    """A file next to the target that only its owner can read; removed at the end, unless it was renamed."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:200]}.", suffix=".part", dir=target.parent)
        os.close(handle)
        try:
            yield Path(name)
        finally:
            for end in ("", *BESIDE):
                Path(name + end).unlink(missing_ok=True)
    except OSError as error:
        raise LoomError(f"cannot write {target}: {error.strerror or error}") from error


def _copy(source: Path, draft: Path) -> None:
    """All pages in one step of SQLite's backup API, under which writers go on.

    In several steps it starts again whenever another process has written: with 400 commits a second it did not finish
    within 20 s. VACUUM INTO takes half as long again (0.6 s instead of 0.4 s for 200 MB), and gives new rowids
    to tables without an integer key, which a full-text index refers to.
    """
    with reading(source) as live, closing(sqlite3.connect(draft, isolation_level=None)) as copy:
        # Nobody needs half a draft, so it needs no journal; it is synced to the disk once, when it is complete.
        copy.execute("PRAGMA journal_mode=OFF")
        copy.execute("PRAGMA synchronous=OFF")
        try:
            live.backup(copy)
        except sqlite3.Error as error:
            if failure_of(error, draft) is FULL:
                raise Unavailable(f"no room for the copy: the disk of {draft.parent} is full") from error
            raise


def _check(source: Path, draft: Path) -> int:
    """Check the copy; return how many turns it holds."""
    try:
        with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
            # A single file: in WAL mode it could not be read from a directory where nothing can be written.
            copy.execute("PRAGMA journal_mode=DELETE")
            if found := damage(copy, is_full=True):
                raise BadFile(f"{source} is damaged ({found[0]}), no copy was kept; run `loom doctor`")
            return int(copy.execute("SELECT count(*) FROM turns").fetchone()[0])
    except sqlite3.Error as error:
        raise file_error(error, source) from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
