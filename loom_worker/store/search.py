"""Full-text search in a session: all that knows of SQLite's FTS5 is here and in the migration that made the index."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from sqlalchemy import BigInteger, Connection, ScalarSelect, bindparam, func, select

from loom_worker.store import recalled, search_rank
from loom_worker.store.database import Database
from loom_worker.store.schema import messages
from loom_worker.store.search_rank import Place
from loom_worker.store.search_words import SEARCHED, Term, terms
from loom_worker.store.sessions import found, of_lane
from loom_worker.values.json import Json
from loom_worker.values.search import Hit
from loom_worker.values.sessions import Message

MOST_ROWS = 300
"""Messages that are taken of one term, the newest ones, in a session of more than LONG messages. A term that so many
hold tells little, and this bounds what a search costs, whatever the session's length."""
LONG = 2_000
"""Messages up to which all that hold a term are taken; newest first costs FTS5 twice as much as oldest first."""
CANDIDATES, LONG_CANDIDATES = 100, 60
"""Messages that are ranked with what stands around them; of a session of more than LONG."""
READ = 30
"""Messages whose text is read, for nearness and snippets, if no more are wanted."""
SPARE = 10
"""Further ones that are read in case some say the same."""

# FTS5's own bm25() counts each word over all sessions first: 5 ms at 100,000 messages, and other people's words would
# move the scores.
_HOLDING = "SELECT {number}, rowid FROM messages_fts5 WHERE messages_fts5 MATCH ?"
_NEWEST = f"SELECT * FROM ({_HOLDING} ORDER BY rowid DESC LIMIT {MOST_ROWS})"

BESIDE = 4
"""Messages on each side of one that count as beside it, tools' left out: the next exchange, and the one behind it."""
NEAR = 2
"""How many of them are near."""

TOOLS_OF_MEMORY = frozenset(
    {"search_conversation", "recall_conversation", "clear_recalled_context", "update_session_context"}
)
"""Their calls and results repeat what was said, and are not searched; the index leaves them out too."""

_other = messages.alias("other")


def _beside(*, is_before: bool) -> ScalarSelect[Any]:
    """The numbers of the messages on one side of a message, the nearest first, as one text."""
    side = _other.c.n < messages.c.n if is_before else _other.c.n > messages.c.n
    near = select(_other.c.n).where(_other.c.lane == bindparam("our_lane"), side, _other.c.role != "tool")
    nearest = near.order_by(_other.c.n.desc() if is_before else _other.c.n).limit(BESIDE).correlate(messages)
    return select(func.group_concat(nearest.subquery().c.n)).scalar_subquery()


# One parameter with all numbers: SQLAlchemy takes 1 ms to spread a hundred.
_numbers = select(func.json_each(bindparam("numbers")).table_valued("value").c.value)
_OURS = (messages.c.lane == bindparam("our_lane"), messages.c.n.in_(_numbers))
_PLACES = select(
    messages.c.n,
    messages.c.role,
    func.length(messages.c.content),
    _beside(is_before=True),
    _beside(is_before=False),
).where(*_OURS)
_TEXTS = select(
    messages.c.n,
    messages.c.id,
    messages.c.turn_id,
    messages.c.role,
    messages.c.content,
    messages.c.tool_calls_json,
    messages.c.tool_result_json,
).where(*_OURS)
_begin, _end = (bindparam(name, type_=BigInteger) for name in ("begin", "end"))
_BETWEEN = select(func.count()).where(
    messages.c.lane == bindparam("our_lane"), messages.c.n >= _begin, messages.c.n < _end
)


@dataclass(frozen=True, slots=True)
class Found:
    """A hit with its message."""

    hit: Hit
    message: Message
    offset: int
    """Messages of the session before it."""


class Search:
    """What was said in a session, by what was said."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def session(self, workspace: str, session_id: str, question: str, *, limit: int) -> tuple[Hit, ...]:
        """The messages of a session that a question is about, the best first; none for a question without words.

        Raises:
            NotFound: the workspace has no such session.
        """
        with self._database.read() as tx:
            owner = found(tx, workspace, session_id)
            return search(tx, owner["lane"], terms(question), size=2 * owner["next_seq"], limit=limit)

    def lane(self, lane: str, question: str, *, limit: int) -> tuple[Found, ...]:
        """As ``session``, for a tool that knows the session's internal key, with the messages.

        Raises:
            NotFound: the session is deleted.
        """
        with self._database.read() as tx:
            hits = search(tx, lane, terms(question), size=2 * of_lane(tx, lane)["next_seq"], limit=limit)
            said = {message.id: message for message in recalled.named(tx, lane, [hit.message_id for hit in hits])}
            offsets = _offsets(tx, lane, [message.n for message in said.values()])
        return tuple(Found(hit, said[hit.message_id], offsets[said[hit.message_id].n]) for hit in hits)


def search(tx: Connection, lane: str, wanted: Sequence[Term], *, size: int, limit: int) -> tuple[Hit, ...]:
    """The messages of a lane that hold some of the terms, and some that stand beside them; the best first.

    Args:
        size: messages in the session, or about as many: what makes a word rare.
    """
    if not wanted:
        return ()
    holding = _holding(tx, lane, wanted, size=size)
    own = search_rank.own_scores(holding, size=size)
    places = _places(tx, lane, search_rank.best(own, CANDIDATES if size <= LONG else LONG_CANDIDATES))
    alone = search_rank.by_length(own, places)
    scores = search_rank.with_neighbours(alone, places)
    texts = _texts(tx, lane, search_rank.best(scores, max(READ, 2 * limit + SPARE)))
    looked_for = search_rank.stems(wanted)
    for n in texts.keys() & alone.keys():
        scores[n] += alone[n] * search_rank.nearness(texts[n][1], looked_for)
    for n, (_, text) in texts.items():
        scores[n] *= search_rank.worth(text)
    return tuple(_hits(texts, scores, looked_for, limit=limit))


def _offsets(tx: Connection, lane: str, numbers: Sequence[int]) -> dict[int, int]:
    """For messages of a lane, in its order, how many stand before each; all rows are walked over once at most."""
    steps = ({"our_lane": lane, "begin": begin, "end": end} for begin, end in pairwise([0, *numbers]))
    return dict(zip(numbers, accumulate(tx.execute(_BETWEEN, step).scalar_one() for step in steps), strict=True))


def _holding(tx: Connection, lane: str, wanted: Sequence[Term], *, size: int) -> list[list[int]]:
    """For each term the messages of the lane that hold it."""
    one = _HOLDING if size <= LONG else _NEWEST
    asked = " UNION ALL ".join(one.format(number=number) for number in range(len(wanted)))
    matches = tuple(f'lane : "{lane}" AND {{said grams tools}} : ({term.match()})' for term in wanted)
    holding: list[list[int]] = [[] for _ in wanted]
    for number, n in tx.exec_driver_sql(asked, matches).all():
        holding[number].append(n)
    return holding


def _places(tx: Connection, lane: str, numbers: list[int]) -> list[Place]:
    listed = tx.execute(_PLACES, {"our_lane": lane, "numbers": json.dumps(numbers)}).all()
    return [_place(n, role, characters, *map(_numbers_in, sides)) for n, role, characters, *sides in listed]


def _place(n: int, role: str, characters: int, before: list[int], after: list[int]) -> Place:
    near, far = (*before[:NEAR], *after[:NEAR]), (*before[NEAR:], *after[NEAR:])
    return Place(n, role, characters, near=near, far=far)


def _numbers_in(joined: str | None) -> list[int]:
    return list(map(int, joined.split(","))) if joined else []


def _texts(tx: Connection, lane: str, numbers: list[int]) -> dict[int, tuple[Any, str]]:
    listed = tx.execute(_TEXTS, {"our_lane": lane, "numbers": json.dumps(numbers)}).all()
    return {row.n: (row, _text(row)) for row in listed}


def _text(row: Any) -> str:
    """What of a message can be found, as one text."""
    calls, outcomes = (
        [each for each in listed or () if each["name"] not in TOOLS_OF_MEMORY]
        for listed in (row.tool_calls_json, row.tool_result_json)
    )
    parts = [row.content, *(f"{call['name']} {_words_of(call['arguments'])}"[:SEARCHED] for call in calls)]
    return "\n".join(filter(None, [*parts, *(outcome["content"][:SEARCHED] for outcome in outcomes)]))


def _words_of(arguments: Json) -> str:
    return ", ".join(f"{name}: {value}" for name, value in arguments.items())


def _hits(
    texts: dict[int, tuple[Any, str]], scores: dict[int, float], looked_for: Sequence[Any], *, limit: int
) -> Iterable[Hit]:
    """The best ones; of messages that say the same only one, for another tells a reader nothing."""
    gists = {n: search_rank.gist(text) for n, (_, text) in texts.items() if text}
    chosen: dict[int, int] = {}
    for n in search_rank.best({n: scores[n] for n in gists}, len(gists)):
        same = next((at for at in chosen if search_rank.is_repeat(gists[n], gists[chosen[at]])), None)
        if same is None:
            chosen[n] = n
        elif n < chosen[same] and texts[n][0].turn_id == texts[chosen[same]][0].turn_id:
            chosen[same] = n  # what was said, rather than an answer that repeats it
    for at in list(chosen)[:limit]:
        row, text = texts[chosen[at]]
        yield Hit(row.id, row.turn_id, row.role, search_rank.snippet(text, looked_for), round(scores[at], 4))
