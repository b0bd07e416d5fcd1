"""What stands beside the messages that a search found: a hit alone is seldom the whole answer."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, ScalarSelect, bindparam, func, select

from loom_worker.core.values.chat import Role
from loom_worker.core.values.pages import Excerpt, Hit
from loom_worker.store import search_rank
from loom_worker.store.schema import messages
from loom_worker.store.search_rank import Place

BESIDE, LONG_BESIDE = 4, 2
"""Messages on each side of one that count as beside it, tools' and empty ones left out: the next exchange, and the one
behind it; in a session of more than LONG messages the next exchange alone."""
LONG = 2_000
"""Messages of a session from which on a search looks at less."""
SHOWN = 2
"""How many of them are in its passage, those left out that only repeat what is there."""

_other = messages.alias("other")


def beside(*, is_before: bool) -> ScalarSelect[Any]:
    """The numbers of the messages on one side of a message, the nearest first, as one text; see ``numbers_in``."""
    side = _other.c.n < messages.c.n if is_before else _other.c.n > messages.c.n
    says = (_other.c.lane == bindparam("our_lane"), side, _other.c.role != "tool", _other.c.content != "")
    nearest = select(_other.c.n).where(*says).order_by(_other.c.n.desc() if is_before else _other.c.n)
    return select(
        func.group_concat(nearest.limit(bindparam("reach")).correlate(messages).subquery().c.n)
    ).scalar_subquery()


# One parameter with all numbers: SQLAlchemy takes 1 ms to spread a hundred.
_numbers = select(func.json_each(bindparam("numbers")).table_valued("value").c.value)
OURS = (messages.c.lane == bindparam("our_lane"), messages.c.n.in_(_numbers))
"""Messages of a lane with given numbers; both are parameters."""
_AROUND = select(messages.c.n, beside(is_before=True), beside(is_before=False)).where(*OURS)
_BEGINNINGS = select(
    messages.c.n,
    messages.c.id,
    messages.c.turn_id,
    messages.c.role,
    func.substr(messages.c.content, 1, search_rank.SNIPPET + 1),
).where(*OURS)


Sides = tuple[tuple[int, ...], tuple[int, ...]]
"""The messages before one and those after it, the nearest first."""


class Beginning:
    """How a message begins, and that as it is compared with others."""

    def __init__(self, message_id: str, turn_id: str, role: Role, text: str) -> None:
        self._message_id, self._turn_id, self._role, self._text = message_id, turn_id, role, text
        self.gist = search_rank.gist(text)

    def excerpt(self) -> Excerpt:
        """What is shown of it."""
        return Excerpt(self._message_id, self._turn_id, self._role, search_rank.shortened(self._text))


def numbers_in(joined: str | None) -> tuple[int, ...]:
    """Read what ``beside`` gives."""
    return tuple(map(int, joined.split(","))) if joined else ()


def reach(size: int) -> int:
    """How many messages on each side count in a session of so many."""
    return BESIDE if size <= LONG else LONG_BESIDE


def ours(lane: str, numbers: Collection[int], **more: int) -> dict[str, Any]:
    """The parameters of a query with ``OURS``."""
    return {"our_lane": lane, "numbers": json.dumps(list(numbers)), **more}


def with_passages(
    tx: Connection, lane: str, hits: Mapping[int, Hit], known: Sequence[Place], *, size: int
) -> tuple[Hit, ...]:
    """Give each hit what stands beside it.

    Args:
        hits: by the message's number, the best first.
        known: places that are read already.
        size: messages in the session, or about as many.
    """
    sides: dict[int, Sides] = {place.n: (place.before, place.after) for place in known if place.n in hits}
    if unknown := hits.keys() - sides.keys():
        listed = tx.execute(_AROUND, ours(lane, unknown, reach=reach(size))).all()
        sides |= {n: (numbers_in(before), numbers_in(after)) for n, before, after in listed}
    wanted = {*hits, *(n for each in sides.values() for side in each for n in side)}
    said = {n: Beginning(*rest) for n, *rest in tx.execute(_BEGINNINGS, ours(lane, wanted)).all()} if wanted else {}
    return tuple(replace(hit, passage=_passage(n, hit, sides[n], said)) for n, hit in hits.items())


def _passage(n: int, hit: Hit, sides: Sides, said: Mapping[int, Beginning]) -> tuple[Excerpt, ...]:
    itself = Excerpt(hit.message_id, hit.turn_id, hit.role, hit.snippet)
    there = [said[n]]
    before_it, after_it = sides
    after = _told([said[at] for at in after_it], there)
    before = _told([said[at] for at in before_it], [*there, *after])
    return (*(each.excerpt() for each in reversed(before)), itself, *(each.excerpt() for each in after))


def _told(side: Sequence[Beginning], there: Sequence[Beginning]) -> list[Beginning]:
    """The nearest SHOWN of one side, without those that say what is there already."""
    told: list[Beginning] = []
    for each in side:
        if len(told) < SHOWN and not any(search_rank.is_repeat(each.gist, other.gist) for other in (*there, *told)):
            told.append(each)
    return told
