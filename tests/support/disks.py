"""Files and disks that fail: pages overwritten, and a file system that is soon full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from loom_worker.core.sqlite_driver import sqlite3

SPOILED = b"\xee" * 4096
"""What a spoiled page holds, whatever its size."""


def spoil(file: Path, name: str) -> None:
    """Overwrite the first page of a table or an index; nobody may be writing."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()[0]
    with file.open("r+b") as content:
        content.seek((page - 1) * size)
        content.write(SPOILED[:1] * size)


@contextmanager
def small_disk(folder: Path, *, size_bytes: int) -> Iterator[Path]:
    """A file system of its own, in memory; the test is skipped where none may be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if done.returncode:
        pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Nobody may write into the folder meanwhile, not even root: for root it is mounted onto itself, read-only."""
    ways = (["mount", "--bind", folder, folder], ["mount", "-o", "remount,bind,ro", folder], ["umount", folder])
    if os.geteuid() != 0:
        ways = (["true"], ["chmod", "555", folder], ["chmod", "755", folder])
    if subprocess.run(ways[0], capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")
    try:
        subprocess.run(ways[1], check=True)
        yield
    finally:
        subprocess.run(ways[2], check=True)


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """The disk of this folder has no byte left until the end."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            assert os.statvfs(folder).f_bavail == 0
    try:
        yield
    finally:
        filler.unlink()
