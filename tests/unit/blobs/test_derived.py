import os
import stat
from pathlib import Path

import pytest

from loom_worker.blobs.derived import DerivedFiles
from tests.unit.blobs.made import new_ref


@pytest.fixture
def copies(tmp_path: Path) -> DerivedFiles:
    return DerivedFiles(tmp_path / "copies", most_bytes=1_000)


def adopted(copies: DerivedFiles, size: int, *, used_s: float | None = None) -> str:
    ref = new_ref()
    with copies.scratch() as scratch:
        scratch.write_bytes(ref.encode() + b"x" * (size - len(ref)))
        copies.adopt(ref, scratch)
    found = copies.find(ref)
    if found and used_s is not None:
        os.utime(found, (used_s, used_s))
    return ref


def test_a_copy_is_found_by_its_reference_alone(copies: DerivedFiles, tmp_path: Path) -> None:
    first, second = adopted(copies, 100), adopted(copies, 100)
    for ref in (first, second):
        found = copies.find(ref)
        assert found is not None
        assert found.read_bytes().startswith(ref.encode())
    assert copies.find(new_ref()) is None
    assert stat.S_IMODE((tmp_path / "copies").stat().st_mode) == 0o700


def test_a_damaged_copy_is_never_used(copies: DerivedFiles, tmp_path: Path) -> None:
    ref = adopted(copies, 100)
    (file,) = (tmp_path / "copies").iterdir()
    file.write_bytes(b"y" + file.read_bytes()[1:])
    assert copies.find(ref) is None
    assert not file.exists()


def test_the_bound_holds_and_those_used_least_lately_go(copies: DerivedFiles, tmp_path: Path) -> None:
    refs = [adopted(copies, 400, used_s=number) for number in (20, 10)]
    newest = adopted(copies, 400)
    assert [copies.find(ref) is not None for ref in (*refs, newest)] == [True, False, True]
    assert sum(file.stat().st_size for file in (tmp_path / "copies").iterdir()) <= 1_000


def test_what_is_larger_than_the_bound_is_not_kept_and_pushes_nothing_out(copies: DerivedFiles) -> None:
    small = adopted(copies, 100)
    assert copies.find(adopted(copies, 1_001)) is None
    assert copies.find(small) is not None


def test_a_scratch_leaves_nothing_whatever_happens(copies: DerivedFiles, tmp_path: Path) -> None:
    with pytest.raises(TypeError), copies.scratch() as scratch:
        scratch.write_bytes("text is no bytes")  # type: ignore[arg-type]
    assert list((tmp_path / "copies").iterdir()) == []


def test_dropped_and_unused_copies_are_removed(copies: DerivedFiles, tmp_path: Path) -> None:
    dropped, old, young = adopted(copies, 100), adopted(copies, 100, used_s=5), adopted(copies, 100, used_s=50)
    half = tmp_path / "copies" / "0123.new"
    half.write_bytes(b"left by a process that died")
    os.utime(half, (5, 5))
    copies.drop([dropped, new_ref()])
    copies.expire(before_s=10)
    assert [copies.find(ref) is not None for ref in (dropped, old, young)] == [False, False, True]
    assert len(list((tmp_path / "copies").iterdir())) == 1


def test_without_a_folder_there_is_nothing_to_do(copies: DerivedFiles) -> None:
    copies.drop([new_ref()])
    copies.expire(before_s=10)
    assert copies.find(new_ref()) is None
