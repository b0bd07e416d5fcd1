"""The passage around each hit, for a hit alone is seldom the whole answer.

Hits beside each other each have a passage, or count as one where hits apart are wanted.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, ScalarSelect, bindparam, func, select

from loom_worker.core.values.chat import Role
from loom_worker.core.values.pages import Excerpt, Hit
from loom_worker.store import search_rank
from loom_worker.store.dialect import joined, json_numbers
from loom_worker.store.schema import messages
from loom_worker.store.search_index import LONG

REACH, LONG_REACH = 4, 2
"""Neighbours of a message on each side, those of tools and empty ones not counted: the next exchange and the one behind
it; in a session of more than LONG messages the next exchange alone."""
SHOWN = 2
"""Neighbours of a hit on each side that its passage shows, without those that only repeat what it shows already."""

Sides = tuple[Sequence[int], Sequence[int]]
"""The neighbours of a message before it and after it, the nearest first."""

_other = messages.alias("other")


def neighbours(*, is_before: bool) -> ScalarSelect[Any]:
    """The numbers of the neighbours on one side of a message, the nearest first, as one text; see ``numbers_in``."""
    side = _other.c.n < messages.c.n if is_before else _other.c.n > messages.c.n
    has_text = (_other.c.lane == messages.c.lane, side, _other.c.role != "tool", _other.c.content != "")
    nearest = select(_other.c.n).where(*has_text).order_by(_other.c.n.desc() if is_before else _other.c.n)
    return joined(nearest.limit(bindparam("reach")).correlate(messages)).scalar_subquery()


def numbers_in(listed: str | None) -> tuple[int, ...]:
    """What ``neighbours`` gives, as numbers."""
    return tuple(map(int, listed.split(","))) if listed else ()


_NUMBERED = messages.c.n.in_(json_numbers("numbers"))
_AROUND = select(messages.c.n, neighbours(is_before=True), neighbours(is_before=False)).where(_NUMBERED)
_BEGINNINGS = select(
    messages.c.n,
    messages.c.id,
    messages.c.turn_id,
    messages.c.role,
    func.substr(messages.c.content, 1, search_rank.SNIPPET + 1),
).where(_NUMBERED)


def reach(size: int) -> int:
    """How many neighbours on each side count where so many messages are searched."""
    return REACH if size <= LONG else LONG_REACH


def chosen(
    tx: Connection, order: Collection[int], known: Mapping[int, Sides], *, limit: int, reach: int, is_apart: bool
) -> dict[int, Sides]:
    """The messages that become hits, with their neighbours, the best first.

    Args:
        order: all that were found, the best first.
        known: neighbours that have been read already.
        is_apart: none of them is one of the nearest SHOWN neighbours of another.
    """
    if not is_apart:
        best = list(order)[:limit]
        around = _around(tx, best, known, reach=reach)
        return {n: around[n] for n in best}
    around, taken = _around(tx, order, known, reach=reach), set[int]()
    hits: dict[int, Sides] = {}
    for n in order:
        if len(hits) < limit and n not in taken:
            hits[n] = around[n]
            taken |= {n, *(near for side in around[n] for near in side[:SHOWN])}
    return hits


def _around(tx: Connection, wanted: Iterable[int], known: Mapping[int, Sides], *, reach: int) -> dict[int, Sides]:
    unknown = [n for n in wanted if n not in known]
    listed = tx.execute(_AROUND, {"numbers": json.dumps(unknown), "reach": reach}).all() if unknown else ()
    return {**known, **{n: (numbers_in(before), numbers_in(after)) for n, before, after in listed}}


def with_passages(
    tx: Connection, hits: Mapping[int, Hit], sides: Mapping[int, Sides], *, is_apart: bool
) -> tuple[Hit, ...]:
    """Give each hit its passage.

    Args:
        hits: by the message's number, the best first.
        sides: the neighbours of each of them.
        is_apart: no message is in two passages: one near several hits is in that of the best.
    """
    numbers = {*hits, *(n for each in sides.values() for side in each for n in side)}
    listed = tx.execute(_BEGINNINGS, {"numbers": json.dumps(list(numbers))}).all() if numbers else ()
    beginnings = {n: _Beginning(*rest) for n, *rest in listed}
    taken, shown = set(hits) if is_apart else set(), list[Hit]()
    for n, hit in hits.items():
        before, after = ([at for at in side if at not in taken] for side in sides[n])
        kept_after = _new_to([beginnings[n]], after, beginnings)
        kept_before = _new_to([beginnings[at] for at in (n, *kept_after)], before, beginnings)
        taken |= {*kept_before, *kept_after} if is_apart else set()
        itself = Excerpt(hit.message_id, hit.turn_id, hit.role, hit.snippet)
        excerpts = [beginnings[at].excerpt() for at in (*reversed(kept_before), *kept_after)]
        passage = (*excerpts[: len(kept_before)], itself, *excerpts[len(kept_before) :])
        shown.append(replace(hit, passage=passage))
    return tuple(shown)


class _Beginning:
    """How a message begins, and its gist for comparison with others."""

    def __init__(self, message_id: str, turn_id: str, role: Role, text: str) -> None:
        self._message_id, self._turn_id, self._role, self._text = message_id, turn_id, role, text
        self.gist = search_rank.gist(text)

    def excerpt(self) -> Excerpt:
        return Excerpt(self._message_id, self._turn_id, self._role, search_rank.shortened(self._text))


def _new_to(shown: Sequence[_Beginning], side: Iterable[int], beginnings: Mapping[int, _Beginning]) -> list[int]:
    """The nearest SHOWN neighbours of one side that do not repeat what is shown."""
    new: list[int] = []
    for at in side:
        known = (*shown, *(beginnings[each] for each in new))
        if len(new) < SHOWN and not any(search_rank.is_repeat(beginnings[at].gist, other.gist) for other in known):
            new.append(at)
    return new
