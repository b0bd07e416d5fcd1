"""One page of a list."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items in order, and the cursor behind the last one."""

    items: tuple[T, ...]
    next: str | None
    """Pass as ``after`` to go on; None at the end."""
