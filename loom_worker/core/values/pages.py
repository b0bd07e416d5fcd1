"""Pages of lists, and what a search found."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from loom_worker.core.errors import Flaw, Invalid
from loom_worker.core.values.chat import Role
from loom_worker.core.values.cutting import dump, size_bytes
from loom_worker.core.values.json import Json, rfc3339

PAGE_BYTES = 1024 * 1024
"""Bytes of the JSON of a page's items; a page ends before the item that goes beyond it. 30 turns of a megabyte were one
answer of 25 MB, and 40 slow readers of it took the web to 3.3 GB."""
PLACES = ("message", "passage")
"""What takes one place in a list of hits: each message that matches, or all that match in one passage."""
T = TypeVar("T")


class Listed(Protocol):
    """What lists hold."""

    def as_json(self) -> Json:
        """As the HTTP API shows it."""

    def brief(self) -> Self:
        """The same with its long fields cut, and marked as such; itself if nothing is long."""


L = TypeVar("L", bound=Listed)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items in order, and the cursor behind the last one."""

    items: tuple[T, ...]
    next: str | None
    """Pass as ``after`` to go on; None at the end."""


def page_of(found: Iterable[L], *, limit: int, cursor: Callable[[L], str]) -> Page[L]:
    """A page of what was found: at most limit items and PAGE_BYTES, but one item whatever it has.

    Args:
        found: in order, one more than limit if there are so many; taken one by one, and no further than needed, so
            that no more of it is in memory at a time than the page and one item.
        cursor: what leads on behind an item.
    """
    items: list[L] = []
    room = PAGE_BYTES
    for item in found:
        kept = item.brief()
        room -= size_bytes(dump(kept.as_json()))
        if items and (room < 0 or len(items) == limit):
            return Page(tuple(items), cursor(items[-1]))
        items.append(kept)
    return Page(tuple(items), None)


def no_cursor(after: str) -> Invalid:
    """What every list raises for an ``after`` that none of its pages gave: to begin anew would look like more."""
    flaw = Flaw("/after", "must be the `next` of a page of this list")
    return Invalid(f"{after!r} is no cursor of this list.", (flaw,))


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What is shown of one message of a passage."""

    message_id: str
    turn_id: str
    role: Role
    text: str
    """At most 200 characters, on one line: the snippet of the hit, the beginning of its neighbours."""

    def as_json(self) -> Json:
        return {"message_id": self.message_id, "turn_id": self.turn_id, "role": self.role, "text": self.text}


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found."""

    message_id: str
    turn_id: str
    role: Role
    snippet: str
    """At most 200 characters of it, around what was looked for; plain text on one line."""
    score: float
    """Larger is better; to be compared within one search alone."""
    passage: tuple[Excerpt, ...] = ()
    """The message and up to two on each side of it, in the order of the conversation."""
    created_ms: int = 0
    """When it was written, ms since 1970."""

    def as_json(self) -> Json:
        return {
            "message_id": self.message_id,
            "turn_id": self.turn_id,
            "role": self.role,
            "snippet": self.snippet,
            "score": self.score,
            "created_at": rfc3339(self.created_ms),
            "passage": [excerpt.as_json() for excerpt in self.passage],
        }
