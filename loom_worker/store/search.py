"""Full-text search in a session or in several, the best first, each hit with its passage (``search_passages``).

A hit is a message. Its score comes from its words and those of its neighbours (``search_rank``), from who wrote it
(``search_names``) and from when it was written.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from typing import Any

from sqlalchemy import BigInteger, Connection, bindparam, func, select

from loom_worker.core.date_ranges import date_range
from loom_worker.core.values.ids import now_ms as moment_ms
from loom_worker.core.values.pages import Hit
from loom_worker.core.values.sessions import Message
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.tiers import Scope
from loom_worker.core.words import WORD
from loom_worker.store import search_index, search_passages, search_rank
from loom_worker.store.database import Database
from loom_worker.store.dialect import json_list, json_numbers
from loom_worker.store.messages import messages_with_ids
from loom_worker.store.schema import messages, sessions
from loom_worker.store.search_index import LONG, NO_LANES, SearchedLanes
from loom_worker.store.search_names import Speakers, Subject, is_name, may_name, speakers, subject_of, with_names
from loom_worker.store.search_passages import neighbours, numbers_in
from loom_worker.store.search_rank import QUESTION_MARKS, Holders, Position
from loom_worker.store.search_synonyms import synonyms
from loom_worker.store.search_words import SEARCHED, Term, terms
from loom_worker.store.sessions import found, of_lane

CANDIDATES, LONG_CANDIDATES = 200, 40
"""Messages that are ranked together with their neighbours; in a session of more than LONG messages at least the second
number, and twice those that are wanted."""
READ = 60
"""Messages whose text is read, for author, date, nearness and snippets, unless more are wanted."""
SPARE = 10
"""Further messages that are read in case some say the same."""
READ_APART = 5
"""Messages that are read for each hit that is wanted, where hits of one stretch count as one."""
MOST_SESSIONS = 200
"""The newest sessions of a scope that are searched together; it bounds the cost."""
RECENT = 1_000
"""The newest messages of a scope in which a word is looked for without a limit."""
TOLD_AFTER_MS = 3 * 24 * 3600 * 1000
"""What happened on a day is often told on one of the next."""
ELSEWHERE = 0.5
"""Factor for the messages of a session in which others speak than those whom the question names."""
NARROW_MS = 32 * 24 * 3600 * 1000
"""A longer range that a message names, such as a year, says little about when it happened."""

WHITE = " \t\r\n"

TOOLS_OF_MEMORY = frozenset(
    "search_conversation recall_conversation clear_recalled_context update_session_context "
    "memory_search memory_summary memory_recall memory_semantic".split()
)
"""Their calls and results repeat what was said and are not searched; the index leaves them out too."""

_NUMBERED = messages.c.n.in_(json_numbers("numbers"))
_POSITIONS = select(
    messages.c.n,
    messages.c.lane,
    messages.c.role,
    func.length(messages.c.content),
    func.substr(messages.c.content, func.length(func.rtrim(messages.c.content, WHITE)), 1),
    neighbours(is_before=True),
    neighbours(is_before=False),
).where(_NUMBERED)
_TEXTS = select(
    messages.c.n,
    messages.c.id,
    messages.c.lane,
    messages.c.turn_id,
    messages.c.role,
    messages.c.content,
    messages.c.tool_calls_json,
    messages.c.tool_result_json,
    messages.c.created_ms,
).where(_NUMBERED)
_LANES = select(messages.c.lane).where(messages.c.id.in_(json_list("ids")))
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


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """What is looked for."""

    terms: tuple[Term, ...]
    subject: Subject
    between: tuple[int, int] | None
    """When it was said, from one moment to another, ms since 1970, the second one excluded; None: at any time."""
    people: frozenset[str] = frozenset()
    """Words in lower case of the names of those who speak."""
    elsewhere: frozenset[str] = frozenset()
    """Sessions, by their internal keys, in which others speak than those whom it names."""


class Search:
    """Finds messages by their words, their authors and their dates."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def session(
        self,
        tenant: Tenant,
        session_id: str,
        question: str,
        *,
        limit: int,
        is_apart: bool = False,
        now_ms: int | None = None,
    ) -> tuple[Hit, ...]:
        """The messages of a session that match a question, the best first; none for a question without words.

        Args:
            is_apart: of the hits within one passage only the best one is returned, so that each is of another stretch.
            now_ms: what ``yesterday`` in the question starts from, ms since 1970; now, unless given.
        """
        with self._database.read() as tx:
            owner = found(tx, tenant, session_id)
            asked = _question(tx, owner, question, now_ms=now_ms)
            return search(tx, _lanes([owner]), asked, limit=limit, is_apart=is_apart)

    def lane(self, lane: str, question: str, *, limit: int) -> tuple[MessageHit, ...]:
        """As ``session``, for a tool that knows the session's internal key, with the messages."""
        return self.scope(lane, question, scope="session", limit=limit, is_apart=False)

    def scope(
        self,
        lane: str,
        question: str,
        *,
        scope: Scope,
        limit: int,
        is_apart: bool = True,
        recent_messages: int = RECENT,
    ) -> tuple[MessageHit, ...]:
        """As ``lane``, in all that an agent may look into: the newest MOST_SESSIONS sessions and this one.

        In the newest sessions, until they have ``recent_messages``, each word is looked for without a limit; in all
        older ones as in a long session: the newest messages with it.

        Args:
            scope: of the session alone, of its user, or of its workspace; without a user it has itself alone.
        """
        with self._database.read() as tx:
            owner = of_lane(tx, lane)
            owners = [owner, *_others(tx, owner, scope)]
            asked = _question(tx, owner, question, now_ms=None, others=owners[1:])
            recent = _recent(owners, recent_messages)
            newest, older = _lanes(owners[:recent]), _lanes(owners[recent:])
            hits = search(tx, newest, asked, older=older, limit=limit, is_apart=is_apart)
            return _with_messages(tx, [each["lane"] for each in owners], hits)

    def among(self, lane: str, numbers: Sequence[int], question: str) -> tuple[MessageHit, ...]:
        """These messages of a session as hits with a score of 0, in this order; those that are gone are left out."""
        looked_for = search_rank.stems(terms(question))
        with self._database.read() as tx:
            reach = search_passages.reach(2 * of_lane(tx, lane)["next_seq"])
            texts = _texts(tx, {lane}, list(numbers))
            hits = {n: _hit(*texts[n], 0.0, looked_for) for n in numbers if n in texts}
            sides = search_passages.chosen(tx, hits, {}, limit=len(hits), reach=reach, is_apart=False)
            return _with_messages(tx, [lane], search_passages.with_passages(tx, hits, sides, is_apart=False))


def _lanes(owners: Sequence[Any]) -> SearchedLanes:
    return SearchedLanes(tuple(owner["lane"] for owner in owners), sum(2 * owner["next_seq"] for owner in owners))


def _others(tx: Connection, owner: Any, scope: Scope) -> Sequence[Any]:
    """The other sessions of a scope, the newest first; those of workflows' stages are left out."""
    if scope == "session" or (scope == "user" and not owner["user"]):
        return ()
    ours = [sessions.c.workspace == owner["workspace"], sessions.c.lane != owner["lane"], ~sessions.c.id.contains(":")]
    if scope == "user":
        ours.append(sessions.c.user == owner["user"])
    newest = select(sessions.c.lane, sessions.c.next_seq).where(*ours).order_by(sessions.c.created_ms.desc())
    return tx.execute(newest.limit(MOST_SESSIONS)).mappings().all()


def _recent(owners: Sequence[Any], messages_wanted: int) -> int:
    """How many of these sessions, from the first on, have so many messages together; at least one."""
    sums = accumulate(2 * owner["next_seq"] for owner in owners)
    return next((at for at, total in enumerate(sums, 1) if total >= messages_wanted), len(owners))


def _question(
    tx: Connection, owner: Any, text: str, *, now_ms: int | None, others: Sequence[Any] = ()
) -> SearchQuestion:
    """Read a question: its words, whom it is about, when.

    Args:
        owner: the session in which it is asked.
        others: those that are searched together with it.
    """
    user = (owner["kernel"] or {}).get("user")
    name = user.get("name") if isinstance(user, dict) else user
    # Who speaks elsewhere is read, a statement for each session, only where the question may name somebody.
    asked = (owner, *others) if may_name(text) else (owner,)
    heard = search_index.beginnings(tx, [each["lane"] for each in asked])
    known = speakers(str(name or owner["user"] or ""), owner["agent"] or "", chain.from_iterable(heard.values()))
    subject = subject_of(text, known)
    between = date_range(text, now_ms=moment_ms() if now_ms is None else now_ms)
    people = frozenset(WORD.findall(" ".join([known.user, known.agent, *known.named]).lower()))
    elsewhere = _without(subject, known, heard)
    return SearchQuestion(with_names(terms(text), subject), subject, between, people, elsewhere)


def _without(subject: Subject, known: Speakers, heard: Mapping[str, Iterable[tuple[str, str]]]) -> frozenset[str]:
    """The sessions whose messages name their authors, and none of them is somebody whom a question names."""
    wanted = known.named & set(subject.names.values())
    authors = {lane: speakers("", "", lines).named for lane, lines in heard.items()} if wanted else {}
    return frozenset(lane for lane, named in authors.items() if named and not wanted <= named)


def search(
    tx: Connection,
    lanes: SearchedLanes,
    asked: SearchQuestion,
    *,
    limit: int,
    is_apart: bool = False,
    older: SearchedLanes = NO_LANES,
) -> tuple[Hit, ...]:
    """The messages that hold some of the terms, and some of their neighbours; the best first.

    Args:
        older: further sessions, of which less is looked at.
    """
    held = _held(tx, lanes, older, asked)
    if not held.sums:
        return ()
    size, keys = lanes.size + older.size, frozenset((*lanes.keys, *older.keys))
    is_long = size > LONG and len(keys) == 1
    most = max(LONG_CANDIDATES, 2 * limit) if is_long else CANDIDATES
    reach = search_passages.reach(size if is_long else 0)
    positions = _positions(tx, keys, search_rank.best(held.sums, most), reach=reach)
    alone = search_rank.alone(held, positions)
    scores = search_rank.with_neighbours(alone, held, positions)
    if asked.elsewhere:
        others = {n for at in positions if at.lane in asked.elsewhere for n in (at.n, *at.before, *at.after)}
        scores = {n: score * ELSEWHERE if n in others else score for n, score in scores.items()}
    read = max(READ, READ_APART * limit if is_apart else 2 * limit + SPARE)
    texts = _texts(tx, keys, search_rank.best(scores, read))
    looked_for = search_rank.stems(asked.terms)
    for n, (row, text) in texts.items():
        if n in alone:
            scores[n] += alone[n] * search_rank.nearness(text, looked_for)
        if asked.between and _tells_of(row, text, asked.between):
            scores[n] += held.weights[-1]
        is_theirs = asked.subject.wrote(row.role, text)
        scores[n] *= search_rank.worth(text, is_by_subject=is_theirs, people=asked.people)
    order = dict(_ordered(texts, scores, most=len(texts) if is_apart else limit))
    around = {position.n: (position.before, position.after) for position in positions}
    shown = search_passages.chosen(tx, order, around, limit=limit, reach=reach, is_apart=is_apart)
    hits = {n: _hit(*texts[n], order[n], looked_for) for n in shown}
    return search_passages.with_passages(tx, hits, shown, is_apart=is_apart)


def _held(tx: Connection, lanes: SearchedLanes, older: SearchedLanes, asked: SearchQuestion) -> Holders:
    """Which messages hold which terms of a question; that one was written when the question says is the last term."""
    if not asked.terms:
        return search_rank.holders([], size=0)
    size = lanes.size + older.size
    holding = search_index.holding(tx, lanes, asked.terms)
    if older.keys:
        more = search_index.holding(tx, replace(older, size=max(older.size, LONG + 1)), asked.terms)
        holding = [ours + theirs for ours, theirs in zip(holding, more, strict=True)]
    weights = [search_rank.rarity(len(rows), size) for rows in holding]
    for at, term in enumerate(asked.terms):
        if is_name(term, asked.subject):
            holding[at] = _with_written(tx, lanes, holding[at], asked.subject)
            count = max(len(holding[at]), size // 2 if asked.subject.role else 0)
            weights[at] = search_rank.NAME * search_rank.rarity(count, size)
    if asked.between:
        begin, end = asked.between
        all_lanes = SearchedLanes((*lanes.keys, *older.keys), size)
        numbers, count = search_index.dated(tx, all_lanes, (begin, end + TOLD_AFTER_MS))
        holding.append(numbers)
        weights.append(search_rank.rarity(count, size))
    return search_rank.holders(holding, size=size, weights=weights, synonyms=_with_synonyms(tx, lanes, asked))


def _with_synonyms(tx: Connection, lanes: SearchedLanes, asked: SearchQuestion) -> dict[int, list[int]]:
    """By place of a term the messages that hold another word for it; a name has none."""
    words = {at: synonyms(term.forms[0]) for at, term in enumerate(asked.terms) if not is_name(term, asked.subject)}
    wanted = {at: Term(others) for at, others in words.items() if others}
    holding = search_index.holding(tx, lanes, tuple(wanted.values())) if wanted else ()
    return dict(zip(wanted, holding, strict=True))


def _with_written(tx: Connection, lanes: SearchedLanes, holding: list[int], subject: Subject) -> list[int]:
    """With what the one of that name wrote, where roles say who wrote it."""
    return list({*holding, *search_index.written(tx, lanes, subject.role)}) if subject.role else holding


def _tells_of(row: Any, text: str, between: tuple[int, int]) -> bool:
    """True of a message that was written outside a range of time, but names a date in it."""
    begin, end = between
    if begin <= row.created_ms < end + TOLD_AFTER_MS:
        return False
    told = date_range(text, now_ms=row.created_ms)
    return told is not None and told[0] < end and begin < told[1] and told[1] - told[0] <= NARROW_MS


def _positions(tx: Connection, keys: Collection[str], numbers: list[int], *, reach: int) -> list[Position]:
    listed = tx.execute(_POSITIONS, {"numbers": json.dumps(numbers), "reach": reach}).all()
    return [
        Position(n, role, characters, numbers_in(before), numbers_in(after), end in QUESTION_MARKS, lane)
        for n, lane, role, characters, end, before, after in listed
        if lane in keys
    ]


def _texts(tx: Connection, keys: Collection[str], numbers: list[int]) -> dict[int, tuple[Any, str]]:
    listed = tx.execute(_TEXTS, {"numbers": json.dumps(numbers)}).all()
    return {row.n: (row, _text(row)) for row in listed if row.lane in keys}


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


def _ordered(texts: dict[int, tuple[Any, str]], scores: dict[int, float], *, most: int) -> Iterable[tuple[int, float]]:
    """The best messages with their scores, the best first; of those that say the same only one."""
    gists = {n: search_rank.gist(text) for n, (_, text) in texts.items() if text}
    chosen: dict[int, int] = {}
    for n in search_rank.best({n: scores[n] for n in gists}, len(gists)):
        same = next((at for at in chosen if search_rank.is_repeat(gists[n], gists[chosen[at]])), None)
        if same is None:
            if len(chosen) < most:
                chosen[n] = n
        elif n < chosen[same] and texts[n][0].turn_id == texts[chosen[same]][0].turn_id:
            chosen[same] = n  # the message itself rather than an answer that repeats it
    return ((shown, scores[at]) for at, shown in chosen.items())


def _hit(row: Any, text: str, score: float, looked_for: Sequence[Any]) -> Hit:
    snippet = search_rank.snippet(text, looked_for)
    return Hit(row.id, row.turn_id, row.role, snippet, round(score, 4), created_ms=row.created_ms)


def _with_messages(tx: Connection, lanes: Sequence[str], hits: Sequence[Hit]) -> tuple[MessageHit, ...]:
    by_id, offsets = dict[str, Message](), dict[str, int]()
    ids = [hit.message_id for hit in hits]
    for lane in set(tx.execute(_LANES, {"ids": json.dumps(ids)}).scalars()) & set(lanes):
        listed = messages_with_ids(tx, lane, ids)
        by_id |= {message.id: message for message in listed}
        numbers = _offsets(tx, lane, [message.n for message in listed])
        offsets |= {message.id: numbers[message.n] for message in listed}
    return tuple(MessageHit(hit, by_id[hit.message_id], offsets[hit.message_id]) for hit in hits)


def _offsets(tx: Connection, lane: str, numbers: Sequence[int]) -> dict[int, int]:
    """How many messages stand before each of these messages of a lane, which are given in its order.

    All rows are walked over at most once.
    """
    steps = ({"our_lane": lane, "begin": begin, "end": end} for begin, end in pairwise([0, *numbers]))
    return dict(zip(numbers, accumulate(tx.execute(_BETWEEN, step).scalar_one() for step in steps), strict=True))
