"""Bytes kept on disk and in memory, compressed where that helps, and checked whenever they are read."""

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from loom_worker.blobs.tier import DamagedBlob, DecompressionBomb, LostBlob, Tier, UnreadableBlob, UnwritableBlob
from loom_worker.core import metrics
from loom_worker.core.values.tools import DataReference

log = logging.getLogger(__name__)

LEAST_BYTES = 1024
"""Shorter data is not compressed."""
LEVEL = 3
MOST_WINDOW_BYTES = 8 * 1024 * 1024
"""Most memory for data already unpacked; level 3 asks for 2 MB."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes that were stored, as they must be found again."""

    checksum: str
    """SHA-256 of the original bytes, in hexadecimal."""
    stored_bytes: int
    compressed: bool


@dataclass(frozen=True, slots=True)
class LocatedBytes:
    """The original bytes, and where they were."""

    data: bytes
    location: Literal["memory", "disk"]


class Blobs:
    """The disk, which has everything, and in front of it the memory, which has what was used recently."""

    def __init__(self, *, disk: Tier, memory: Tier) -> None:
        self._disk = disk
        self._memory = memory

    def put(self, ref: str, data: bytes) -> Stored:
        """Store bytes under a reference that has none yet.

        Raises:
            UnwritableBlob: they cannot be stored; DiskFull if free space on the disk would help.
        """
        frame = packed(data)
        stored = data if frame is None else frame
        try:
            self._disk.put(ref, stored)
        except UnwritableBlob as fault:
            metrics.LARGE_RESULT_EVENTS.count(fault.counted)
            raise
        self._memory.put(ref, stored)
        metrics.LARGE_RESULT_EVENTS.count("kept")
        return Stored(hashlib.sha256(data).hexdigest(), len(stored), frame is not None)

    def read(self, reference: DataReference) -> LocatedBytes:
        """The original bytes. A copy in memory that is damaged is dropped, and the disk is read.

        Raises:
            UnreadableBlob: lost, damaged or a decompression bomb; the disk does not have them either.
        """
        # Stored bytes are never more than the original ones, so no more need be read.
        copy = self._memory.get(reference.id, most_bytes=reference.size_bytes)
        if copy is not None:
            try:
                return LocatedBytes(_original(copy, reference), "memory")
            except DamagedBlob as fault:
                log.error("the copy of %s in memory is damaged (%s); it is dropped", reference.id, fault)
                metrics.LARGE_RESULT_EVENTS.count("damaged_in_memory")
                self._memory.drop([reference.id])
        try:
            stored = self._disk.get(reference.id, most_bytes=reference.size_bytes)
            if stored is None:
                raise LostBlob(f"the data of {reference.id} is gone")
            data = _original(stored, reference)
        except UnreadableBlob as fault:
            log.error("%s cannot be read: %s", reference.id, fault)
            metrics.LARGE_RESULT_EVENTS.count(fault.counted)
            raise
        self._memory.put(reference.id, stored)
        return LocatedBytes(data, "disk")

    def drop(self, refs: Iterable[str]) -> None:
        gone = list(refs)
        self._memory.drop(gone)
        self._disk.drop(gone)


def _original(stored: bytes, reference: DataReference) -> bytes:
    size_bytes = reference.size_bytes
    data = unpacked(stored, size_bytes=size_bytes) if reference.compressed else stored
    if len(data) != size_bytes or hashlib.sha256(data).hexdigest() != reference.checksum:
        raise DamagedBlob(f"the data of {reference.id} is damaged: its checksum differs")
    return data


def packed(data: bytes) -> bytes | None:
    """A zstd frame that is shorter than the data; None if there is none, or if the data is short anyway."""
    if len(data) < LEAST_BYTES:
        return None
    import zstandard  # here, for most processes that know references never need it

    frame = zstandard.ZstdCompressor(level=LEVEL).compress(data)
    return frame if len(frame) < len(data) else None


def unpacked(frame: bytes, *, size_bytes: int) -> bytes:
    """The data that ``packed`` was given, if it had this size. It never takes more memory than that.

    ``max_output_size`` does not bound zstandard's ``decompress`` where a frame states its size: 15 kB became 500 MB.

    Raises:
        DecompressionBomb: the frame holds, or claims to hold, more.
        DamagedBlob: it is not a frame, is cut, or holds less.
    """
    import zstandard

    try:
        stated = zstandard.frame_content_size(frame)
        if stated > size_bytes:
            raise DecompressionBomb(f"the stored data would unpack to {stated:,} bytes instead of {size_bytes:,}")
        reader = zstandard.ZstdDecompressor(max_window_size=MOST_WINDOW_BYTES).stream_reader(frame)
        data = reader.read(size_bytes + 1)
    except zstandard.ZstdError as error:
        raise DamagedBlob("the stored data cannot be unpacked") from error
    if len(data) > size_bytes:
        raise DecompressionBomb(f"the stored data would unpack to more than {size_bytes:,} bytes")
    if len(data) < size_bytes:
        raise DamagedBlob(f"the stored data unpacks to {len(data):,} bytes instead of {size_bytes:,}")
    return data
