"""Bytes kept on disk and in memory, compressed where that helps, and checked whenever they are read."""

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from loom_worker.blobs.counters import Counters
from loom_worker.blobs.faults import Damaged, Lost, Unreadable, Unwritable
from loom_worker.blobs.frame import packed, unpacked
from loom_worker.blobs.tier import Tier
from loom_worker.core.values.tools import DataReference

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """What is known of bytes that are kept now."""

    checksum: str
    """SHA-256 of the original bytes, in hexadecimal."""
    stored_bytes: int
    compressed: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The original bytes, and where they were."""

    data: bytes
    location: Literal["memory", "disk"]


class Blobs:
    """The disk, which has everything, and in front of it the memory, which has what was used last."""

    def __init__(self, *, disk: Tier, memory: Tier, counters: Counters) -> None:
        self._disk = disk
        self._memory = memory
        self._counters = counters

    def put(self, ref: str, data: bytes) -> Stored:
        """Keep bytes under a reference that has none yet.

        Raises:
            Unwritable: they cannot be kept; DiskFull where room on the disk would help.
        """
        frame = packed(data)
        stored = data if frame is None else frame
        try:
            self._disk.put(ref, stored)
        except Unwritable as fault:
            self._counters.count(fault.counted)
            raise
        self._memory.put(ref, stored)
        self._counters.count("kept")
        return Stored(hashlib.sha256(data).hexdigest(), len(stored), frame is not None)

    def read(self, reference: DataReference) -> Found:
        """The original bytes. A copy in memory that is not right is dropped, and the disk asked.

        Raises:
            Unreadable: Lost, Damaged or Bomb: the disk does not have them either.
        """
        # Stored bytes are fewer than the original ones or as many, so more need not even be read.
        copy = self._memory.get(reference.id, most_bytes=reference.size_bytes)
        if copy is not None:
            try:
                return Found(_original(copy, reference), "memory")
            except Damaged as fault:
                log.error("the copy of %s in memory is damaged (%s); it is dropped", reference.id, fault)
                self._counters.count("damaged_in_memory")
                self._memory.drop([reference.id])
        return self._from_disk(reference)

    def drop(self, refs: Iterable[str]) -> None:
        """Forget bytes on both tiers."""
        gone = list(refs)
        self._memory.drop(gone)
        self._disk.drop(gone)

    def _from_disk(self, reference: DataReference) -> Found:
        try:
            stored = self._disk.get(reference.id, most_bytes=reference.size_bytes)
            if stored is None:
                raise Lost(f"the data of {reference.id} is gone")
            data = _original(stored, reference)
        except Unreadable as fault:
            log.error("%s cannot be read: %s", reference.id, fault)
            self._counters.count(fault.counted)
            raise
        self._memory.put(reference.id, stored)
        return Found(data, "disk")


def _original(stored: bytes, reference: DataReference) -> bytes:
    size_bytes = reference.size_bytes
    data = unpacked(stored, size_bytes=size_bytes) if reference.compressed else stored
    if len(data) != size_bytes or hashlib.sha256(data).hexdigest() != reference.checksum:
        raise Damaged(f"the data of {reference.id} is damaged: its checksum is another one")
    return data
