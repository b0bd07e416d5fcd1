import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from loom_worker.blobs.disk import FOLDERS, DiskTier
from loom_worker.blobs.tier import DiskFull, UnwritableBlob
from tests.support.disks import filled, small_disk
from tests.unit.blobs.made import new_ref


def all_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def shelved(disk: DiskTier, before_s: float) -> set[str]:
    return {ref for number in range(FOLDERS) for ref in disk.refs_in(number, before_s=before_s)}


def test_nobody_else_may_look_at_the_folder_or_its_files(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir(mode=0o777)
    old = os.umask(0)
    try:
        DiskTier(tmp_path / "blobs").put(new_ref(), b"secret")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "blobs").stat().st_mode) == 0o700
    (file,) = all_files(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_lies_under_the_digits_of_its_reference_alone(tmp_path: Path) -> None:
    ref = new_ref()
    DiskTier(tmp_path).put(ref, b"data")
    digits = ref.removeprefix("ref_")
    assert all_files(tmp_path) == [tmp_path / digits[:2] / digits[2:4] / digits]


def test_two_stores_on_one_folder_see_each_others_files(tmp_path: Path) -> None:
    first, second, ref = DiskTier(tmp_path), DiskTier(tmp_path), new_ref()
    first.put(ref, b"data")
    assert second.get(ref, most_bytes=4) == b"data"
    second.drop([ref])
    assert first.get(ref, most_bytes=4) is None


def test_half_a_file_is_never_seen(tmp_path: Path) -> None:
    disk, ref, sizes = DiskTier(tmp_path), new_ref(), set[int]()
    disk.put(ref, b"a" * 500_000)
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            sizes.add(len(disk.get(ref, most_bytes=1_000_000) or b""))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(30):
        disk.put(ref, b"b" * 500_000)
    is_over.set()
    reader.join()
    assert sizes == {500_000}


@pytest.mark.integration
def test_a_full_disk_is_told_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", size_bytes=2_000_000) as folder:
        disk, ref = DiskTier(folder / "blobs"), new_ref()
        disk.put(ref, b"data")
        with filled(folder), pytest.raises(DiskFull, match="full"):
            disk.put(new_ref(), b"x" * 100_000)
        assert [file.name for file in all_files(folder / "blobs")] == [ref.removeprefix("ref_")]
        assert disk.get(ref, most_bytes=9) == b"data"


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UnwritableBlob, match="cannot be written"):
        DiskTier(tmp_path / "file" / "blobs").put(new_ref(), b"data")
    assert DiskTier(tmp_path / "file" / "blobs").get(new_ref(), most_bytes=1) is None


def test_old_files_are_found_on_their_shelf_and_young_ones_are_not(disk: DiskTier) -> None:
    refs = {new_ref() for _ in range(20)}
    for ref in refs:
        disk.put(ref, b"data")
    now_s = time.time()
    assert shelved(disk, now_s - 60) == set()
    assert shelved(disk, now_s + 60) == refs


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, pathlib; from loom_worker.blobs.disk import DiskTier\n"
        "pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "DiskTier(pathlib.Path(sys.argv[1])).put(sys.argv[2], b'data')\n"
    )
    died = subprocess.run([sys.executable, "-c", program, str(tmp_path), new_ref()], check=False)
    assert died.returncode == -signal.SIGKILL
    assert [file.suffix for file in all_files(tmp_path)] == [".new"]
    disk = DiskTier(tmp_path)
    assert shelved(disk, time.time() - 60) == set()
    assert len(all_files(tmp_path)) == 1
    assert shelved(disk, time.time() + 60) == set()
    assert all_files(tmp_path) == []


def test_a_shelf_that_was_never_made_is_empty(disk: DiskTier, tmp_path: Path) -> None:
    assert shelved(disk, time.time()) == set()
    assert list(tmp_path.iterdir()) == []
