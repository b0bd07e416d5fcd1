"""One page of a list."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from loom_worker.errors import Flaw, Invalid

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items in order, and the cursor behind the last one."""

    items: tuple[T, ...]
    next: str | None
    """Pass as ``after`` to go on; None at the end."""


def no_cursor(after: str) -> Invalid:
    """What every list raises for an ``after`` that none of its pages gave: to begin anew would look like more."""
    flaw = Flaw("/after", "must be the `next` of a page of this list")
    return Invalid(f"{after!r} is no cursor of this list.", (flaw,))
