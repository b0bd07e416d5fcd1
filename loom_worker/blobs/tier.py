"""What a tier is: it keeps bytes by reference. And what can go wrong with them: errors safe to show, each counted."""

import re
from collections.abc import Iterable
from typing import ClassVar, Protocol

from loom_worker.core.errors import LoomError

_REF = re.compile(r"ref_([0-9a-f]{32})")


class Tier(Protocol):
    """Keeps the bytes of references. They never change, so any copy is right."""

    def put(self, ref: str, data: bytes) -> None:
        """Keep these bytes; a tier that nothing depends on may choose not to.

        Raises:
            UnwritableBlob: they must be kept here and cannot be.
        """

    def get(self, ref: str, *, most_bytes: int) -> bytes | None:
        """The bytes; None if they are not here. Of more than ``most_bytes`` only the first ``most_bytes`` + 1."""

    def drop(self, refs: Iterable[str]) -> None:
        """Remove these; those that are not here are ignored."""


class UnreadableBlob(LoomError):
    """A stored result cannot be read: it must be made again."""

    counted: ClassVar[str] = "damaged"


class LostBlob(UnreadableBlob):
    """Its file is gone."""

    counted: ClassVar[str] = "lost"


class DamagedBlob(UnreadableBlob):
    """Its bytes are not those that were stored."""


class DecompressionBomb(DamagedBlob):
    """Its bytes would unpack to more than was stored; they were not unpacked."""

    counted: ClassVar[str] = "bombs"


class UnwritableBlob(LoomError):
    """A result cannot be stored: the folder cannot be written."""

    counted: ClassVar[str] = "unwritable"


class DiskFull(UnwritableBlob):
    """The disk is full, whatever the store's own bound."""

    counted: ClassVar[str] = "disk_full"


def is_ref(text: str) -> bool:
    """True for ``ref_`` and 32 hexadecimal digits."""
    return _REF.fullmatch(text) is not None


def digits(ref: str) -> str:
    """The 32 hexadecimal digits of a reference, which make its file's name.

    Raises:
        ValueError: it is not a reference, so it must not become part of a path.
    """
    found = _REF.fullmatch(ref)
    if found is None:
        raise ValueError(f"not a reference: {ref[:60]!r}")
    return found[1]
