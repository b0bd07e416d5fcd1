"""Full-text search in a session, and the passage around each hit, for a hit alone is seldom the whole answer.

Only this file and the migrations that make the index know of SQLite's FTS5.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from sqlalchemy import BigInteger, Connection, ScalarSelect, bindparam, func, select

from loom_worker.core.values.chat import Role
from loom_worker.core.values.pages import Excerpt, Hit
from loom_worker.core.values.sessions import Message
from loom_worker.core.values.tenants import Tenant
from loom_worker.store import search_rank
from loom_worker.store.database import Database
from loom_worker.store.messages import messages_with_ids
from loom_worker.store.schema import messages
from loom_worker.store.search_rank import QUESTION_MARKS, Position
from loom_worker.store.search_words import SEARCHED, Term, terms
from loom_worker.store.sessions import found, of_lane

LONG = 2_000
"""Messages of a session above which a search looks at less."""
MOST_ROWS = 900
"""Messages that are taken for all terms together, the newest for each, in a session of more than LONG messages. A term
that so many hold says little, and this bounds the cost of a search, whatever the session's length."""
CANDIDATES, LONG_CANDIDATES = 200, 40
"""Messages that are ranked together with their neighbours; in a session of more than LONG messages at least the second
number, and twice those that are wanted."""
READ = 30
"""Messages whose text is read, for nearness and snippets, unless more are wanted."""
SPARE = 10
"""Further messages that are read in case some say the same."""
REACH, LONG_REACH = 4, 2
"""Neighbours of a message on each side, those of tools and empty ones not counted: the next exchange and the one behind
it; in a session of more than LONG messages the next exchange alone."""
SHOWN = 2
"""Neighbours of a hit on each side that its passage shows, without those that only repeat what it shows already."""

DENSE = 4
"""A session is dense if, between its first message and its last, at most this many times its own messages were written
in all sessions."""

# FTS5's own bm25() counts each word over all sessions first: 5 ms at 100,000 messages, and other people's words would
# move the scores.
_HOLDING = "SELECT {number}, rowid FROM messages_fts5 WHERE messages_fts5 MATCH ?"
_NEWEST = f"SELECT * FROM ({_HOLDING} ORDER BY rowid DESC LIMIT {{most}})"
# With the lane as a term, FTS5 walks all of the lane for each word. Where most messages around are the lane's anyway,
# it is cheaper to look each up in the lane's index.
_NEWEST_DENSE = (
    "SELECT * FROM (SELECT {number}, rowid FROM messages_fts5 WHERE messages_fts5 MATCH ? AND rowid BETWEEN ? AND ? "
    "AND EXISTS (SELECT 1 FROM messages INDEXED BY messages_by_session WHERE lane = ? AND n = messages_fts5.rowid) "
    "ORDER BY rowid DESC LIMIT {most})"
)

WHITE = " \t\r\n"

TOOLS_OF_MEMORY = frozenset(
    {"search_conversation", "recall_conversation", "clear_recalled_context", "update_session_context"}
)
"""Their calls and results repeat what was said and are not searched; the index leaves them out too."""

_other = messages.alias("other")


def _neighbours(*, is_before: bool) -> ScalarSelect[Any]:
    """The numbers of the neighbours on one side of a message, the nearest first, as one text; see ``_numbers_in``."""
    side = _other.c.n < messages.c.n if is_before else _other.c.n > messages.c.n
    has_text = (_other.c.lane == bindparam("our_lane"), side, _other.c.role != "tool", _other.c.content != "")
    nearest = select(_other.c.n).where(*has_text).order_by(_other.c.n.desc() if is_before else _other.c.n)
    return select(
        func.group_concat(nearest.limit(bindparam("reach")).correlate(messages).subquery().c.n)
    ).scalar_subquery()


# One parameter with all numbers: SQLAlchemy takes 1 ms to spread a hundred.
_numbers = select(func.json_each(bindparam("numbers")).table_valued("value").c.value)
_NUMBERED = (messages.c.lane == bindparam("our_lane"), messages.c.n.in_(_numbers))
_AROUND = select(messages.c.n, _neighbours(is_before=True), _neighbours(is_before=False)).where(*_NUMBERED)
_BEGINNINGS = select(
    messages.c.n,
    messages.c.id,
    messages.c.turn_id,
    messages.c.role,
    func.substr(messages.c.content, 1, search_rank.SNIPPET + 1),
).where(*_NUMBERED)

_POSITIONS = select(
    messages.c.n,
    messages.c.role,
    func.length(messages.c.content),
    func.substr(func.rtrim(messages.c.content, WHITE), -1),
    _neighbours(is_before=True),
    _neighbours(is_before=False),
).where(*_NUMBERED)
_TEXTS = select(
    messages.c.n,
    messages.c.id,
    messages.c.turn_id,
    messages.c.role,
    messages.c.content,
    messages.c.tool_calls_json,
    messages.c.tool_result_json,
).where(*_NUMBERED)
_ENDS = select(
    *(
        select(end(messages.c.n)).where(messages.c.lane == bindparam("our_lane")).scalar_subquery()
        for end in (func.min, func.max)
    )
)
_begin, _end = (bindparam(name, type_=BigInteger) for name in ("begin", "end"))
_BETWEEN = select(func.count()).where(
    messages.c.lane == bindparam("our_lane"), messages.c.n >= _begin, messages.c.n < _end
)


@dataclass(frozen=True, slots=True)
class MessageHit:
    """A hit with its message."""

    hit: Hit
    message: Message
    offset: int
    """Messages of the session before it."""


class Search:
    """Finds messages of a session by their words."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def session(self, tenant: Tenant, session_id: str, question: str, *, limit: int) -> tuple[Hit, ...]:
        """The messages of a session that match a question, the best first; none for a question without words.

        Raises:
            NotFound: the tenant has no such session.
        """
        with self._database.read() as tx:
            owner = found(tx, tenant, session_id)
            return search(tx, owner["lane"], terms(question), size=2 * owner["next_seq"], limit=limit)

    def lane(self, lane: str, question: str, *, limit: int) -> tuple[MessageHit, ...]:
        """As ``session``, for a tool that knows the session's internal key, with the messages.

        Raises:
            NotFound: the session is deleted.
        """
        with self._database.read() as tx:
            hits = search(tx, lane, terms(question), size=2 * of_lane(tx, lane)["next_seq"], limit=limit)
            return _with_messages(tx, lane, hits)

    def among(self, lane: str, numbers: Sequence[int], question: str) -> tuple[MessageHit, ...]:
        """These messages of a session as hits with a score of 0, in this order; those that are gone are left out.

        Raises:
            NotFound: the session is deleted.
        """
        looked_for = search_rank.stems(terms(question))
        with self._database.read() as tx:
            size, texts = 2 * of_lane(tx, lane)["next_seq"], _texts(tx, lane, list(numbers))
            read = [texts[n] for n in numbers if n in texts]
            hits = {
                row.n: Hit(row.id, row.turn_id, row.role, search_rank.snippet(text, looked_for), 0.0)
                for row, text in read
            }
            return _with_messages(tx, lane, _with_passages(tx, lane, hits, (), size=size))


def search(tx: Connection, lane: str, wanted: Sequence[Term], *, size: int, limit: int) -> tuple[Hit, ...]:
    """The messages of a lane that hold some of the terms, and some of their neighbours; the best first.

    Args:
        size: messages in the session, or about as many: what makes a word rare.
    """
    if not wanted:
        return ()
    holding = _holding(tx, lane, wanted, size=size)
    if not any(holding):
        return ()
    held = search_rank.holders(holding, size=size)
    most = CANDIDATES if size <= LONG else max(LONG_CANDIDATES, 2 * limit)
    candidates = search_rank.best(held.sums, most)
    positions = _positions(tx, lane, candidates, reach=_reach(size))
    alone = search_rank.alone(held, positions)
    scores = search_rank.with_neighbours(alone, held, positions)
    texts = _texts(tx, lane, search_rank.best(scores, max(READ, 2 * limit + SPARE)))
    looked_for = search_rank.stems(wanted)
    for n in texts.keys() & alone.keys():
        scores[n] += alone[n] * search_rank.nearness(texts[n][1], looked_for)
    for n, (_, text) in texts.items():
        scores[n] *= search_rank.worth(text)
    return _with_passages(tx, lane, dict(_hits(texts, scores, looked_for, limit=limit)), positions, size=size)


def _with_messages(tx: Connection, lane: str, hits: Sequence[Hit]) -> tuple[MessageHit, ...]:
    by_id = {message.id: message for message in messages_with_ids(tx, lane, [hit.message_id for hit in hits])}
    offsets = _offsets(tx, lane, sorted(message.n for message in by_id.values()))
    return tuple(MessageHit(hit, by_id[hit.message_id], offsets[by_id[hit.message_id].n]) for hit in hits)


def _offsets(tx: Connection, lane: str, numbers: Sequence[int]) -> dict[int, int]:
    """How many messages stand before each of these messages of a lane, which are given in its order.

    All rows are walked over at most once.
    """
    steps = ({"our_lane": lane, "begin": begin, "end": end} for begin, end in pairwise([0, *numbers]))
    return dict(zip(numbers, accumulate(tx.execute(_BETWEEN, step).scalar_one() for step in steps), strict=True))


def _holding(tx: Connection, lane: str, wanted: Sequence[Term], *, size: int) -> list[list[int]]:
    """For each term the messages of the lane that hold it."""
    one, most = _HOLDING, MOST_ROWS // len(wanted)
    match, more = f'lane : "{lane}" AND {{{{said grams tools}}}} : ({{}})', tuple[Any, ...]()
    if size > LONG:
        first, last = tx.execute(_ENDS, {"our_lane": lane}).one()
        one = _NEWEST
        if first is not None and last - first < DENSE * size:
            one, match, more = _NEWEST_DENSE, "{{said grams tools}} : ({})", (first, last, lane)
    asked = " UNION ALL ".join(one.format(number=number, most=most) for number in range(len(wanted)))
    values = [value for term in wanted for value in (match.format(term.match()), *more)]
    holding: list[list[int]] = [[] for _ in wanted]
    for number, n in tx.exec_driver_sql(asked, tuple(values)).all():
        holding[number].append(n)
    return holding


def _positions(tx: Connection, lane: str, numbers: list[int], *, reach: int) -> list[Position]:
    listed = tx.execute(_POSITIONS, _wanted(lane, numbers, reach=reach)).all()
    return [
        Position(n, role, characters, _numbers_in(before), _numbers_in(after), end in QUESTION_MARKS)
        for n, role, characters, end, before, after in listed
    ]


def _texts(tx: Connection, lane: str, numbers: list[int]) -> dict[int, tuple[Any, str]]:
    listed = tx.execute(_TEXTS, _wanted(lane, numbers)).all()
    return {row.n: (row, _text(row)) for row in listed}


def _text(row: Any) -> str:
    """The part of a message that can be searched, as one text."""
    calls, outcomes = (
        [each for each in listed or () if each["name"] not in TOOLS_OF_MEMORY]
        for listed in (row.tool_calls_json, row.tool_result_json)
    )
    parts = [row.content]
    for call in calls:
        arguments = ", ".join(f"{name}: {value}" for name, value in call["arguments"].items())
        parts.append(f"{call['name']} {arguments}"[:SEARCHED])
    return "\n".join(filter(None, [*parts, *(outcome["content"][:SEARCHED] for outcome in outcomes)]))


def _hits(
    texts: dict[int, tuple[Any, str]], scores: dict[int, float], looked_for: Sequence[Any], *, limit: int
) -> Iterable[tuple[int, Hit]]:
    """The best messages by their numbers; of messages that say the same only one, for another adds nothing."""
    gists = {n: search_rank.gist(text) for n, (_, text) in texts.items() if text}
    chosen: dict[int, int] = {}
    for n in search_rank.best({n: scores[n] for n in gists}, len(gists)):
        same = next((at for at in chosen if search_rank.is_repeat(gists[n], gists[chosen[at]])), None)
        if same is None:
            chosen[n] = n
        elif n < chosen[same] and texts[n][0].turn_id == texts[chosen[same]][0].turn_id:
            chosen[same] = n  # the message itself rather than an answer that repeats it
    for at in list(chosen)[:limit]:
        row, text = texts[chosen[at]]
        snippet = search_rank.snippet(text, looked_for)
        yield row.n, Hit(row.id, row.turn_id, row.role, snippet, round(scores[at], 4))


class _Beginning:
    """How a message begins, and its gist for comparison with others."""

    def __init__(self, message_id: str, turn_id: str, role: Role, text: str) -> None:
        self._message_id, self._turn_id, self._role, self._text = message_id, turn_id, role, text
        self.gist = search_rank.gist(text)

    def excerpt(self) -> Excerpt:
        return Excerpt(self._message_id, self._turn_id, self._role, search_rank.shortened(self._text))


def _numbers_in(joined: str | None) -> tuple[int, ...]:
    return tuple(map(int, joined.split(","))) if joined else ()


def _reach(size: int) -> int:
    """How many neighbours on each side count in a session of so many messages."""
    return REACH if size <= LONG else LONG_REACH


def _wanted(lane: str, numbers: Collection[int], **more: int) -> dict[str, Any]:
    """The parameters of a query for ``_NUMBERED`` messages."""
    return {"our_lane": lane, "numbers": json.dumps(list(numbers)), **more}


def _with_passages(
    tx: Connection, lane: str, hits: Mapping[int, Hit], known: Sequence[Position], *, size: int
) -> tuple[Hit, ...]:
    """Give each hit its passage.

    Args:
        hits: by the message's number, the best first.
        known: positions that have been read already.
        size: messages in the session, or about as many.
    """
    sides = {position.n: (position.before, position.after) for position in known if position.n in hits}
    if unknown := hits.keys() - sides.keys():
        listed = tx.execute(_AROUND, _wanted(lane, unknown, reach=_reach(size))).all()
        sides |= {n: (_numbers_in(before), _numbers_in(after)) for n, before, after in listed}
    numbers = {*hits, *(n for each in sides.values() for side in each for n in side)}
    beginnings = (
        {n: _Beginning(*rest) for n, *rest in tx.execute(_BEGINNINGS, _wanted(lane, numbers)).all()} if numbers else {}
    )
    return tuple(replace(hit, passage=_passage(n, hit, sides[n], beginnings)) for n, hit in hits.items())


def _passage(
    n: int, hit: Hit, sides: tuple[Sequence[int], Sequence[int]], beginnings: Mapping[int, _Beginning]
) -> tuple[Excerpt, ...]:
    """The hit between its neighbours, in the order of the conversation."""
    before_hit, after_hit = ([beginnings[at] for at in side] for side in sides)
    after = _new_to([beginnings[n]], after_hit)
    before = _new_to([beginnings[n], *after], before_hit)
    itself = Excerpt(hit.message_id, hit.turn_id, hit.role, hit.snippet)
    return (*(each.excerpt() for each in reversed(before)), itself, *(each.excerpt() for each in after))


def _new_to(shown: Sequence[_Beginning], side: Sequence[_Beginning]) -> list[_Beginning]:
    """The nearest SHOWN neighbours of one side that do not repeat what is shown."""
    new: list[_Beginning] = []
    for each in side:
        if len(new) < SHOWN and not any(search_rank.is_repeat(each.gist, other.gist) for other in (*shown, *new)):
            new.append(each)
    return new
