import os

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.blobs.faults import Bomb, Damaged
from loom_worker.blobs.frame import LEAST_BYTES, packed, unpacked


@given(st.binary(max_size=200), st.integers(1, 200))
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
    with pytest.raises(Bomb):
        unpacked(bomb, size_bytes=20_000)


def test_a_frame_that_wants_a_huge_window_is_refused() -> None:
    wide = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    writer = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    data = writer.compress(b"ab" * 5000) + writer.flush()
    with pytest.raises(Damaged):
        unpacked(data, size_bytes=10_000)


@pytest.mark.cases("spoil", [lambda f: f[:-5], lambda f: f[:3], lambda _: b"", lambda _: b"no frame at all" * 99])
def test_a_cut_or_foreign_frame_is_damage(spoil: object) -> None:
    frame = packed(bytes(range(256)) * 100)
    assert frame is not None
    with pytest.raises(Damaged):
        unpacked(spoil(frame), size_bytes=25_600)  # type: ignore[operator]


def test_a_frame_of_another_size_is_damage() -> None:
    frame = packed(b"ab" * 5000)
    assert frame is not None
    with pytest.raises(Damaged, match="10,000 bytes instead of 10,001"):
        unpacked(frame, size_bytes=10_001)
    with pytest.raises(Bomb):
        unpacked(frame, size_bytes=9_999)
