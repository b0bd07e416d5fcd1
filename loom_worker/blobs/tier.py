"""What both tiers are: bytes by reference."""

import re
from collections.abc import Iterable
from typing import Protocol

_REF = re.compile(r"ref_([0-9a-f]{32})")


class Tier(Protocol):
    """Keeps the bytes of references; they never change, so whoever has them has the right ones."""

    def put(self, ref: str, data: bytes) -> None:
        """Keep these bytes, or, where nothing rests on it, do not.

        Raises:
            Unwritable: they are needed here and cannot be kept.
        """

    def get(self, ref: str, *, most_bytes: int) -> bytes | None:
        """The bytes; None if they are not here. Of more than ``most_bytes`` only the beginning, of one byte more."""

    def drop(self, refs: Iterable[str]) -> None:
        """Forget these; those that are not here are forgotten already."""


def is_ref(text: str) -> bool:
    """True for ``ref_`` and 32 hexadecimal digits."""
    return _REF.fullmatch(text) is not None


def digits(ref: str) -> str:
    """The 32 hexadecimal digits of a reference, which make its file's name.

    Raises:
        ValueError: it is none, so it must not become part of a path.
    """
    found = _REF.fullmatch(ref)
    if found is None:
        raise ValueError(f"not a reference: {ref[:60]!r}")
    return found[1]
