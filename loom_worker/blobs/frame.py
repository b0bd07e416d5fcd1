"""Compression, and the way back that never takes more memory than the size that is known. Pure.

``max_output_size`` does not bound zstandard's ``decompress`` where a frame states its size: 15 kB became 500 MB.
"""

from loom_worker.blobs.faults import Bomb, Damaged

LEAST_BYTES = 1024
"""Shorter data is not compressed."""
LEVEL = 3
MOST_WINDOW_BYTES = 8 * 1024 * 1024
"""Of what was unpacked, so much at most must be held; level 3 asks for 2 MB."""


def packed(data: bytes) -> bytes | None:
    """A zstd frame that is shorter than the data; None if there is none, or the data is short anyway."""
    if len(data) < LEAST_BYTES:
        return None
    import zstandard  # here, for most processes that know of references never need it

    frame = zstandard.ZstdCompressor(level=LEVEL).compress(data)
    return frame if len(frame) < len(data) else None


def unpacked(frame: bytes, *, size_bytes: int) -> bytes:
    """What ``packed`` was given, if it was of that size.

    Raises:
        Bomb: the frame holds, or claims to hold, more.
        Damaged: it is no frame, is cut, or holds less.
    """
    import zstandard

    try:
        stated = zstandard.frame_content_size(frame)
        if stated > size_bytes:
            raise Bomb(f"the stored data would unpack to {stated:,} bytes instead of {size_bytes:,}")
        reader = zstandard.ZstdDecompressor(max_window_size=MOST_WINDOW_BYTES).stream_reader(frame)
        data = reader.read(size_bytes + 1)
    except zstandard.ZstdError as error:
        raise Damaged("the stored data cannot be unpacked") from error
    if len(data) > size_bytes:
        raise Bomb(f"the stored data would unpack to more than {size_bytes:,} bytes")
    if len(data) < size_bytes:
        raise Damaged(f"the stored data unpacks to {len(data):,} bytes instead of {size_bytes:,}")
    return data
