"""What a check finds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A promise that was broken."""

    invariant: str
    """I1 to I22."""
    text: str
    """Which turn or request, and what is wrong with it."""
