"""Asks the full-text index which messages hold which words, and the table when and by whom they were written."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import BigInteger, Connection, bindparam, func, select

from loom_worker.store.dialect import is_postgresql, json_list
from loom_worker.store.engines.postgresql_search import TsvectorIndex
from loom_worker.store.engines.sqlite_search import Fts5Index
from loom_worker.store.schema import messages
from loom_worker.store.search_names import BEGINNING
from loom_worker.store.search_words import Term

LONG = 2_000
"""Messages of a session above which a search looks at less."""
MOST_ROWS = 900
"""Messages that are taken for all terms together, the newest for each, in a session of more than LONG messages. A term
that so many hold says little, and this bounds the cost of a search, whatever the session's length."""
MOST_DATED, DATED_LANES = 2_000, 20
"""The newest messages of a range of time that are looked at in a session, and the sessions in which it is done."""
MOST_WRITTEN = 200
"""The newest messages of an author that are looked at for that alone."""
HEARD, HEARD_LANES = 40, 100
"""The newest messages of a session whose beginnings tell who speaks in it, and the sessions in which it is done."""

_lane = messages.c.lane == bindparam("our_lane")
_ENDS = select(
    *(select(end(messages.c.n)).where(_lane).scalar_subquery() for end in (func.min, func.max)),
)
_AT = bindparam("at", type_=BigInteger)
_NEXT = select(messages.c.n, messages.c.created_ms).where(_lane, messages.c.n >= _AT).order_by(messages.c.n).limit(1)
_NEWEST_BETWEEN = (
    select(messages.c.n)
    .where(_lane, messages.c.n >= _AT, messages.c.n < bindparam("behind", type_=BigInteger))
    .order_by(messages.c.n.desc())
    .limit(MOST_DATED)
)
_WRITTEN_BETWEEN = select(messages.c.n).where(
    messages.c.lane.in_(json_list("lanes")),
    messages.c.created_ms >= bindparam("begin", type_=BigInteger),
    messages.c.created_ms < bindparam("end", type_=BigInteger),
)
_HEARD = (
    select(messages.c.role, func.substr(messages.c.content, 1, BEGINNING))
    .where(_lane, messages.c.role != "tool")
    .order_by(messages.c.n.desc())
    .limit(HEARD)
)
_WRITTEN = (
    select(messages.c.n)
    .where(_lane, messages.c.role == bindparam("role"))
    .order_by(messages.c.n.desc())
    .limit(MOST_WRITTEN)
)


@dataclass(frozen=True, slots=True)
class SearchedLanes:
    """Sessions that are searched together, by their internal keys."""

    keys: tuple[str, ...]
    """The one that was used last first."""
    size: int
    """Messages in all of them, or about as many: what makes a word rare."""


NO_LANES = SearchedLanes((), 0)


class TermIndex(Protocol):
    """How a database looks up which messages of sessions hold a word."""

    def all(self, tx: Connection, lanes: Sequence[str], wanted: Sequence[Term]) -> list[list[int]]:
        """For each term the numbers of the messages that hold it, in any order."""

    def newest(
        self, tx: Connection, lanes: Sequence[str], wanted: Sequence[Term], *, most: int, size: int
    ) -> list[list[int]]:
        """For each term the newest messages that hold it, the newest first.

        Args:
            size: messages of the sessions, or about as many.
        """


def holding(tx: Connection, lanes: SearchedLanes, wanted: Sequence[Term]) -> list[list[int]]:
    """For each term the messages of the sessions that hold it.

    Of long sessions, and of many, only the newest: MOST_ROWS for all terms together.
    """
    index: TermIndex = TsvectorIndex() if is_postgresql(tx) else Fts5Index()
    if lanes.size <= LONG:
        return index.all(tx, lanes.keys, wanted)
    return index.newest(tx, lanes.keys, wanted, most=MOST_ROWS // len(wanted), size=lanes.size)


def dated(tx: Connection, lanes: SearchedLanes, between: tuple[int, int]) -> tuple[list[int], int]:
    """The messages that were written from one moment to another (ms since 1970, the second one excluded).

    The table has no index by time. Up to LONG messages are all looked at; in more of them later messages are taken to
    have larger numbers, which in a session moved in out of order some have not.

    Returns:
        The newest of each session, and about how many there are.
    """
    if lanes.size <= LONG:
        wanted = {"lanes": json.dumps(lanes.keys), "begin": between[0], "end": between[1]}
        numbers = list(tx.execute(_WRITTEN_BETWEEN, wanted).scalars())
        return numbers, len(numbers)
    found, share = list[int](), 0.0
    for lane in lanes.keys[:DATED_LANES]:
        ends = _ends(tx, lane)
        if ends is None:
            continue
        first, behind = (_since(tx, lane, moment, ends) for moment in between)
        found += tx.execute(_NEWEST_BETWEEN, {"our_lane": lane, "at": first, "behind": behind}).scalars()
        share += (behind - first) / (ends[1] - ends[0] + 1)
    return found, max(len(found), int(share * lanes.size / max(1, len(lanes.keys))))


def written(tx: Connection, lanes: SearchedLanes, role: str) -> list[int]:
    """The newest messages of the session that was used last whose role this is."""
    return list(tx.execute(_WRITTEN, {"our_lane": lanes.keys[0], "role": role}).scalars())


def beginnings(tx: Connection, lanes: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Role and beginning of the newest messages of each session, by its internal key; of the first HEARD_LANES."""
    return {lane: [(*row,) for row in tx.execute(_HEARD, {"our_lane": lane})] for lane in lanes[:HEARD_LANES]}


def _ends(tx: Connection, lane: str) -> tuple[int, int] | None:
    """The numbers of a session's first and last message; None if it has none."""
    first, last = tx.execute(_ENDS, {"our_lane": lane}).one()
    return None if first is None else (first, last)


def _since(tx: Connection, lane: str, moment_ms: int, ends: tuple[int, int]) -> int:
    """A number below which all messages of a session are older than a moment, and from which on none is."""
    low, high = ends[0], ends[1] + 1
    while low < high:
        middle = (low + high) // 2
        n, created_ms = tx.execute(_NEXT, {"our_lane": lane, "at": middle}).one()
        if created_ms < moment_ms:
            low = n + 1
        else:
            high = middle
    return low
