import os
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_worker.blobs.blobs import LEAST_BYTES, Blobs, packed, unpacked
from loom_worker.blobs.disk import DiskTier
from loom_worker.blobs.memory import PREFIX, MemoryTier
from loom_worker.blobs.tier import DamagedBlob, DecompressionBomb, LostBlob, UnreadableBlob, UnwritableBlob
from loom_worker.core.metrics import LARGE_RESULT_EVENTS
from tests.support.counting import Counted
from tests.unit.blobs.made import new_ref, reference

TEXT = b"the same words over and over; " * 200


@pytest.fixture
def blobs(disk: DiskTier, memory: MemoryTier) -> Blobs:
    return Blobs(disk=disk, memory=memory)


def file_of(tmp_path: Path, ref: str) -> Path:
    digits = ref.removeprefix("ref_")
    return tmp_path / "blobs" / digits[:2] / digits[2:4] / digits


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@given(st.one_of(st.binary(max_size=3_000), st.text(max_size=1_000).map(lambda text: text.encode() * 9)))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_original_bytes_come_back_from_either_tier(blobs: Blobs, memory: MemoryTier, data: bytes) -> None:
    ref = new_ref()
    known = reference(ref, data, blobs.put(ref, data))
    assert blobs.read(known).data == data
    memory.drop([ref])
    from_disk = blobs.read(known)
    assert (from_disk.data, from_disk.location) == (data, "disk")
    assert blobs.read(known).location == "memory"


def test_what_repeats_itself_is_stored_in_little_space(blobs: Blobs, tmp_path: Path) -> None:
    ref = new_ref()
    stored = blobs.put(ref, TEXT)
    assert stored.compressed
    assert stored.stored_bytes == file_of(tmp_path, ref).stat().st_size < len(TEXT) / 10


def test_a_flipped_byte_in_memory_is_healed_from_the_disk(blobs: Blobs, client: Any, counted: Counted) -> None:
    for data in (TEXT, b"short"):
        ref = new_ref()
        known = reference(ref, data, blobs.put(ref, data))
        client.set(PREFIX + ref, flipped(client.get(PREFIX + ref)))
        found = blobs.read(known)
        assert (found.data, found.location) == (data, "disk")
        assert blobs.read(known).location == "memory"
    assert counted(LARGE_RESULT_EVENTS)["damaged_in_memory",] == 2


@pytest.mark.parametrize("data", [TEXT, b"short"])
def test_a_flipped_byte_on_disk_is_never_read(blobs: Blobs, memory: MemoryTier, tmp_path: Path, data: bytes) -> None:
    ref = new_ref()
    known = reference(ref, data, blobs.put(ref, data))
    memory.drop([ref])
    file = file_of(tmp_path, ref)
    file.write_bytes(flipped(file.read_bytes()))
    with pytest.raises(DamagedBlob):
        blobs.read(known)
    assert memory.get(ref, most_bytes=len(data)) is None


def test_every_fault_of_the_disk_is_its_own_and_counted(
    blobs: Blobs, memory: MemoryTier, counted: Counted, tmp_path: Path
) -> None:
    bomb = zstandard.ZstdCompressor().compress(b"\0" * 50_000_000)
    faults: list[tuple[type[UnreadableBlob], bytes | None]] = [
        (LostBlob, None),
        (DecompressionBomb, bomb),
        (DamagedBlob, b""),
        (DamagedBlob, TEXT),
    ]
    for fault, content in faults:
        ref = new_ref()
        known = reference(ref, TEXT, blobs.put(ref, TEXT))
        memory.drop([ref])
        file_of(tmp_path, ref).unlink()
        if content is not None:
            file_of(tmp_path, ref).write_bytes(content)
        with pytest.raises(UnreadableBlob) as raised:
            blobs.read(known)
        assert type(raised.value) is fault
    found = counted(LARGE_RESULT_EVENTS)
    assert {name: found[name,] for name in ("lost", "bombs", "damaged", "kept")} == {
        "lost": 1,
        "bombs": 1,
        "damaged": 2,
        "kept": 4,
    }


def test_a_bomb_in_memory_is_dropped_and_the_disk_asked(blobs: Blobs, client: Any) -> None:
    ref = new_ref()
    known = reference(ref, TEXT, blobs.put(ref, TEXT))
    client.set(PREFIX + ref, zstandard.ZstdCompressor().compress(b"\0" * 50_000_000))
    assert blobs.read(known).data == TEXT


def test_a_lost_file_is_still_read_from_memory(blobs: Blobs, tmp_path: Path) -> None:
    ref = new_ref()
    known = reference(ref, TEXT, blobs.put(ref, TEXT))
    file_of(tmp_path, ref).unlink()
    assert blobs.read(known).data == TEXT


def test_what_is_dropped_is_on_neither_tier(blobs: Blobs, memory: MemoryTier, disk: DiskTier) -> None:
    ref = new_ref()
    blobs.put(ref, TEXT)
    blobs.drop([ref])
    assert (memory.get(ref, most_bytes=9_999), disk.get(ref, most_bytes=9_999)) == (None, None)


def test_what_cannot_be_written_is_not_kept_in_memory_either(
    memory: MemoryTier, counted: Counted, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    ref = new_ref()
    with pytest.raises(UnwritableBlob):
        Blobs(disk=DiskTier(tmp_path / "file"), memory=memory).put(ref, TEXT)
    assert memory.get(ref, most_bytes=9_999) is None
    assert counted(LARGE_RESULT_EVENTS) == {("unwritable",): 1, ("memory_misses",): 1}


@given(st.binary(max_size=200), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_what_is_packed_comes_back(piece: bytes, times: int) -> None:
    data = piece * times
    frame = packed(data)
    if frame is None:
        return
    assert len(frame) < len(data)
    assert unpacked(frame, size_bytes=len(data)) == data


def test_short_data_and_noise_stay_as_they_are() -> None:
    assert packed(b"a" * (LEAST_BYTES - 1)) is None
    assert packed(os.urandom(50_000)) is None
    assert packed(b"a" * LEAST_BYTES) is not None


@pytest.mark.parametrize("states_size", [True, False])
def test_a_bomb_is_refused_before_it_takes_memory(states_size: bool) -> None:
    bomb = zstandard.ZstdCompressor(write_content_size=states_size).compress(b"\0" * 300_000_000)
    assert len(bomb) < 20_000
    with pytest.raises(DecompressionBomb):
        unpacked(bomb, size_bytes=20_000)


def test_a_frame_that_wants_a_huge_window_is_refused() -> None:
    wide = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    writer = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    data = writer.compress(b"ab" * 5000) + writer.flush()
    with pytest.raises(DamagedBlob):
        unpacked(data, size_bytes=10_000)


@pytest.mark.parametrize("spoil", [lambda f: f[:-5], lambda f: f[:3], lambda _: b"", lambda _: b"no frame at all" * 99])
def test_a_cut_or_foreign_frame_is_damage(spoil: object) -> None:
    frame = packed(bytes(range(256)) * 100)
    assert frame is not None
    with pytest.raises(DamagedBlob):
        unpacked(spoil(frame), size_bytes=25_600)  # type: ignore[operator]


def test_a_frame_of_another_size_is_damage() -> None:
    frame = packed(b"ab" * 5000)
    assert frame is not None
    with pytest.raises(DamagedBlob, match="10,000 bytes instead of 10,001"):
        unpacked(frame, size_bytes=10_001)
    with pytest.raises(DecompressionBomb):
        unpacked(frame, size_bytes=9_999)
