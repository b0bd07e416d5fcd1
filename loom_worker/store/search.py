"""Full-text search in a session: all that knows of SQLite's FTS5 is here and in the migration that made the index."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from sqlalchemy import BigInteger, Connection, bindparam, func, select

from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import Hit
from loom_worker.core.values.sessions import Message
from loom_worker.store import recalled, search_rank
from loom_worker.store.database import Database
from loom_worker.store.passages import LONG, OURS, beside, numbers_in, ours, reach, with_passages
from loom_worker.store.schema import messages
from loom_worker.store.search_rank import QUESTION_MARKS, Place
from loom_worker.store.search_words import SEARCHED, Term, terms
from loom_worker.store.sessions import found, of_lane

MOST_ROWS = 900
"""Messages that are taken of all terms together, the newest ones of each, in a session of more than LONG messages. A
term that so many hold tells little, and this bounds what a search costs, whatever the session's length."""
CANDIDATES, LONG_CANDIDATES = 200, 40
"""Messages that are ranked with what stands around them; of a session of more than LONG at least so many, and twice
those that are wanted."""
READ = 30
"""Messages whose text is read, for nearness and snippets, if no more are wanted."""
SPARE = 10
"""Further ones that are read in case some say the same."""

DENSE = 4
"""A session is dense where from its first message to its last no more than so many times its own were written."""

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
"""Their calls and results repeat what was said, and are not searched; the index leaves them out too."""

_PLACES = select(
    messages.c.n,
    messages.c.role,
    func.length(messages.c.content),
    func.substr(func.rtrim(messages.c.content, WHITE), -1),
    beside(is_before=True),
    beside(is_before=False),
).where(*OURS)
_TEXTS = select(
    messages.c.n,
    messages.c.id,
    messages.c.turn_id,
    messages.c.role,
    messages.c.content,
    messages.c.tool_calls_json,
    messages.c.tool_result_json,
).where(*OURS)
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
    if not any(holding):
        return ()
    held = search_rank.holders(holding, size=size)
    most = CANDIDATES if size <= LONG else max(LONG_CANDIDATES, 2 * limit)
    candidates = search_rank.best(held.sums, most)
    places = _places(tx, lane, candidates, most_beside=reach(size))
    alone = search_rank.alone(held, places)
    scores = search_rank.with_neighbours(alone, held, places)
    texts = _texts(tx, lane, search_rank.best(scores, max(READ, 2 * limit + SPARE)))
    looked_for = search_rank.stems(wanted)
    for n in texts.keys() & alone.keys():
        scores[n] += alone[n] * search_rank.nearness(texts[n][1], looked_for)
    for n, (_, text) in texts.items():
        scores[n] *= search_rank.worth(text)
    return with_passages(tx, lane, dict(_hits(texts, scores, looked_for, limit=limit)), places, size=size)


def _offsets(tx: Connection, lane: str, numbers: Sequence[int]) -> dict[int, int]:
    """For messages of a lane, in its order, how many stand before each; all rows are walked over once at most."""
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


def _places(tx: Connection, lane: str, numbers: list[int], *, most_beside: int) -> list[Place]:
    listed = tx.execute(_PLACES, ours(lane, numbers, reach=most_beside)).all()
    return [
        Place(n, role, characters, numbers_in(before), numbers_in(after), end in QUESTION_MARKS)
        for n, role, characters, end, before, after in listed
    ]


def _texts(tx: Connection, lane: str, numbers: list[int]) -> dict[int, tuple[Any, str]]:
    listed = tx.execute(_TEXTS, ours(lane, numbers)).all()
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
) -> Iterable[tuple[int, Hit]]:
    """The best ones by their numbers; of messages that say the same only one, for another tells a reader nothing."""
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
        snippet = search_rank.snippet(text, looked_for)
        yield row.n, Hit(row.id, row.turn_id, row.role, snippet, round(scores[at], 4))
