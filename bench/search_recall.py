"""What share of the messages that answer a question a search finds, over dialogues that are no part of the package.

As it is and with each part of the ranking left out, for each dialogue and over all questions; with constants chosen on
the other dialogues; and in one conversation of 600 turns, beside what of it the model is sent anyway.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, product
from typing import Any
from unittest import mock

from sqlalchemy import select

from bench.facts_of_dialogues import recalled
from bench.search_data import WORKSPACE, Said, database, figure, load
from bench.stats import percentile
from loom_worker.agents.tiers import ACTIVE_WINDOW
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.sessions import Message
from loom_worker.core.words import STOP_WORDS
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.memory import heuristic
from loom_worker.memory.recalled import Room, answer, size_bytes
from loom_worker.memory.search_tool import listed
from loom_worker.memory.semantic import with_passages
from loom_worker.store import search as searching
from loom_worker.store import search_passages, search_rank, search_words
from loom_worker.store.database import Database
from loom_worker.store.schema import sessions
from loom_worker.store.search import MessageHit, Search
from loom_worker.store.sessions import Sessions

Dialogue = Mapping[str, Any]
DAY_MS = 24 * 3600 * 1000
LONG_TURNS, L2_TOKENS = 600, 5_000
LEAST_SENTENCE = 20
"""Characters of a sentence that stands for its message in a summary."""
LINES = (10, 20, 27, 35, 50)
"""Hits without neighbours, a line each."""
CURVE = ((10, 1, True), (15, 1, True), (10, 2, False), (10, 2, True))
"""Hits, neighbours on each side, and whether hits of one passage count as one."""
ROOM = Room(1_000_000, len, 1_000_000)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def recalls(store: Database, dialogues: Sequence[Dialogue]) -> None:
    """Print all figures."""
    for dialogue in dialogues:
        load(store, dialogue["id"], said(dialogue))
    figure("recall@10, FTS5's BM25 alone", 100 * plain(store, dialogues, frozenset()), "%")
    figure("recall@10, FTS5's BM25, stop words dropped", 100 * plain(store, dialogues, STOP_WORDS), "%")
    for part, without in WITHOUT.items():
        with without():
            report(f", without {part}" if part else "", recall(store, dialogues))
    report(", one hit a passage", recall(store, dialogues, is_apart=True))
    for share in (50, 95, 100):
        figure(f"tokens of a passage, p{share}", percentile(passage_tokens(store, dialogues), share), "tokens")
    curve(store, dialogues)
    of_user(dialogues, by_day=False)
    of_user(dialogues, by_day=True)
    leave_one_out(store, dialogues)
    long_conversation(store, dialogues)


def curve(store: Database, dialogues: Sequence[Dialogue]) -> None:
    """What hits find alone or with neighbours, and the bytes of an answer that shows them."""
    for hits, neighbours, is_apart in [*((most, 0, False) for most in LINES), *CURVE]:
        shares, sizes = list[float](), list[int]()
        for wanted, found in answers(store, dialogues, hits=hits, neighbours=neighbours, is_apart=is_apart):
            shown = {each.message_id for one in found for each in one.hit.passage}
            shares.append(len(wanted & shown) / len(wanted))
            more = [(one, {"score": one.hit.score}) for one in found]
            sizes.append(size_bytes(answer("found", with_passages(more), {}, ROOM) if neighbours else lines(found)))
        told = {"hits": hits, "neighbours": neighbours, "is_apart": is_apart, "bytes": sum(sizes) // len(sizes)}
        figure("recall of an answer", 100 * sum(shares) / len(shares), "%", **told)


def lines(found: Sequence[MessageHit]) -> str:
    """The answer of ``memory_search`` in one session."""
    return listed(found, found[0].message.session_id if found else "", "session", ROOM)


def answers(
    store: Database, dialogues: Sequence[Dialogue], *, hits: int, neighbours: int, is_apart: bool
) -> Iterator[tuple[set[str], Sequence[MessageHit]]]:
    """The messages that answer each question, and what is found."""
    search, sessions_ = Search(store), Sessions(store)
    for dialogue in dialogues:
        lane = sessions_.get(WORKSPACE, dialogue["id"]).lane
        for asked in dialogue["questions"]:
            with mock.patch.object(search_passages, "SHOWN", neighbours):
                found = search.scope(lane, asked["question"], scope="session", limit=hits, is_apart=is_apart)
            yield {f"{dialogue['id']}/{each}" for each in asked["evidence"]}, found


def of_user(dialogues: Sequence[Dialogue], *, by_day: bool) -> None:
    """Recall in ten passages over all sessions of one user, asked from a session of its own."""
    with database() as store:
        for dialogue in dialogues:
            for day, lines in groupby(said(dialogue), key=lambda line: line[3] if by_day else 0):
                load(store, f"{dialogue['id']}.{day}", [*lines], user="u")
        load(store, "asker", [("0", "user", "Hello.", 1)], user="u")
        search, lane, shares = Search(store), Sessions(store).get(WORKSPACE, "asker").lane, list[float]()
        for dialogue in dialogues:
            for asked in dialogue["questions"]:
                found = search.scope(lane, asked["question"], scope="user", limit=10)
                ids = {each.message_id for one in found for each in one.hit.passage}
                shown = {(at.split(".")[0], at.partition("/")[2]) for at in ids}
                wanted = {(dialogue["id"], each) for each in asked["evidence"]}
                shares.append(len(wanted & shown) / len(wanted))
    figure("recall@10 in passages over a user's sessions", 100 * sum(shares) / len(shares), "%", by_day=by_day)


def said(dialogue: Dialogue) -> Said:
    """Its messages: those of the first speaker are the user's, the name stands before each text."""
    first = dialogue["messages"][0]["speaker"]
    return [
        (
            m["id"],
            "user" if m["speaker"] == first else "assistant",
            f"{m['speaker']}: {m['text']}",
            moment_ms(m["time"]),
        )
        for m in dialogue["messages"]
    ]


def moment_ms(time: str) -> int:
    """``4:04 pm on 20 January, 2023``, taken for UTC, as ms since 1970."""
    return int(datetime.strptime(time, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC).timestamp()) * 1000


@dataclass(frozen=True, slots=True)
class Found:
    """Shares of the evidence, 0-1, one of each question."""

    in_hits: Sequence[float]
    in_passages: Sequence[float]
    """In the hits or beside them."""


def recall(store: Database, dialogues: Sequence[Dialogue], *, is_apart: bool = False) -> dict[str, Found]:
    """Ask all questions of each dialogue, at its end, for ten hits."""
    search, found = Search(store), {}
    for dialogue in dialogues:
        now_ms, hits_of, shown_of = moment_ms(dialogue["messages"][-1]["time"]), [], []
        for asked in dialogue["questions"]:
            text = asked["question"]
            hits = search.session(WORKSPACE, dialogue["id"], text, limit=10, is_apart=is_apart, now_ms=now_ms)
            wanted = {f"{dialogue['id']}/{each}" for each in asked["evidence"]}
            shown = {each.message_id for hit in hits for each in hit.passage}
            hits_of.append(len(wanted & {hit.message_id for hit in hits}) / len(wanted))
            shown_of.append(len(wanted & shown) / len(wanted))
        found[dialogue["id"]] = Found(hits_of, shown_of)
    return found


def report(name: str, found: Mapping[str, Found]) -> None:
    """Print the mean over all questions, and that of each dialogue."""
    for kind, shares in (
        ("recall@10", {each: of.in_hits for each, of in found.items()}),
        ("recall@10 in passages", {each: of.in_passages for each, of in found.items()}),
    ):
        every = [share for of in shares.values() for share in of]
        each = {dialogue: round(100 * sum(of) / len(of), 1) for dialogue, of in shares.items()}
        more = {"nothing_found": every.count(0.0), "questions": len(every), **each}
        figure(f"{kind}{name}", 100 * sum(every) / len(every), "%", **more)


def passage_tokens(store: Database, dialogues: Sequence[Dialogue]) -> list[int]:
    """The size of the passages of all hits, as cl100k counts their texts."""
    search, tokens = Search(store), []
    for dialogue in dialogues:
        for asked in dialogue["questions"]:
            hits = search.session(WORKSPACE, dialogue["id"], asked["question"], limit=10)
            tokens += [cl100k_tokens("\n".join(each.text for each in hit.passage)) for hit in hits]
    return tokens


def plain(store: Database, dialogues: Sequence[Dialogue], dropped: frozenset[str]) -> float:
    """As recall, with nothing but FTS5's BM25 over the question's words, those dropped left out."""
    shares = []
    with store.read() as tx:
        for dialogue in dialogues:
            lane = tx.execute(select(sessions.c.lane).where(sessions.c.id == dialogue["id"])).scalar_one()
            for asked in dialogue["questions"]:
                words = [word for word in re.findall(r"[^\W_]+", asked["question"].lower()) if word not in dropped]
                match = f'lane : "{lane}" AND said : ({" OR ".join(map(json.dumps, words))})'
                found = tx.exec_driver_sql(PLAIN, (match,)).scalars().all()
                ids = {at.removeprefix(f"{dialogue['id']}/") for at in found}
                shares.append(len(ids & set(asked["evidence"])) / len(asked["evidence"]))
    return sum(shares) / len(shares)


def leave_one_out(store: Database, dialogues: Sequence[Dialogue]) -> None:
    """For each dialogue what it gets with the constants of authors and dates that are best on the others."""
    tried = {}
    for author, name, days in product((0.0, 0.5, 1.0), (0.5, 1.0), (0, 3, 7)):
        with constants(author=author, name=name, days=days):
            found = recall(store, dialogues)
        tried[author, name, days] = {each: of.in_hits for each, of in found.items()}
    shares: list[float] = []
    for held_out in (dialogue["id"] for dialogue in dialogues):
        others = {
            choice: [share for each, of in of_choice.items() if each != held_out for share in of]
            for choice, of_choice in tried.items()
        }
        best = max(others, key=lambda choice: sum(others[choice]))
        own = tried[best][held_out]
        shares += own
        chosen = dict(zip(("author", "name_weight", "days"), best, strict=True))
        figure(f"recall@10 of {held_out}, constants of the others", 100 * sum(own) / len(own), "%", **chosen)
    figure("recall@10, constants of the other dialogues", 100 * sum(shares) / len(shares), "%")


@contextmanager
def constants(*, author: float, name: float, days: int) -> Iterator[None]:
    """A search with other constants."""
    with (
        mock.patch.object(search_rank, "AUTHOR", author),
        mock.patch.object(search_rank, "NAME", name),
        mock.patch.object(searching, "TOLD_AFTER_MS", days * DAY_MS),
    ):
        yield


def long_conversation(store: Database, dialogues: Sequence[Dialogue]) -> None:
    """Put the dialogues one behind the other, as a session of LONG_TURNS turns; where is what answers a question?"""
    lines, questions = [], []
    for dialogue in dialogues:
        lines += [(f"{dialogue['id']}-{at}", role, text, ms) for at, role, text, ms in said(dialogue)]
        questions += [
            (asked["question"], {f"long/{dialogue['id']}-{each}" for each in asked["evidence"]})
            for asked in dialogue["questions"]
        ]
    lines = lines[: 2 * LONG_TURNS]
    there = {f"long/{at}" for at, *_ in lines}
    load(store, "long", lines)
    in_l1 = {f"long/{at}" for at, *_ in lines[-ACTIVE_WINDOW:]}
    in_l2 = summarized(lines[:-ACTIVE_WINDOW])
    asked = [(text, wanted) for text, wanted in questions if wanted <= there]
    hits = [
        Search(store).session(WORKSPACE, "long", text, limit=10, is_apart=True, now_ms=lines[-1][3])
        for text, _ in asked
    ]
    shown = [{each.message_id for hit in found for each in hit.passage} for found in hits]
    noted = recalled(store, lines, [text for text, _ in asked], in_l1=ACTIVE_WINDOW)
    places: dict[str, list[set[str]]] = {
        "L1": [in_l1] * len(asked),
        "L1 or L2": [in_l1 | in_l2] * len(asked),
        "ten passages": shown,
        "thirty facts": [{f"long/{each}" for each in found} for found in noted],
        "L1, L2 or ten passages": [in_l1 | in_l2 | found for found in shown],
    }
    for place, found in places.items():
        some = sum(bool(wanted & held) for (_, wanted), held in zip(asked, found, strict=True)) / len(asked)
        whole = sum(wanted <= held for (_, wanted), held in zip(asked, found, strict=True)) / len(asked)
        more = {"turns": LONG_TURNS, "questions": len(asked), "all_of_it": round(100 * whole, 1)}
        figure(f"questions with evidence in {place}", 100 * some, "%", **more)


def summarized(lines: Said) -> set[str]:
    """The messages of which a sentence stands in a summary that Loom makes without a model."""
    chats = [ChatMessage(role, text) for _, role, text, _ in lines]  # type: ignore[arg-type]
    messages = [Message("", "", "", chat, 1, 1) for chat in chats]
    summary = heuristic.summarize(messages, most_tokens=L2_TOKENS, count=cl100k_tokens)
    return {f"long/{at}" for at, _, text, _ in lines if any(each in summary for each in sentences(text))}


def sentences(text: str) -> list[str]:
    """The sentences of a message, its author's name left out, that are long enough to be told from others."""
    return [each for each in _SENTENCE.split(text.partition(": ")[2]) if len(each) >= LEAST_SENTENCE]


PLAIN = (
    "SELECT messages.id FROM messages_fts5 JOIN messages ON messages.n = messages_fts5.rowid "
    "WHERE messages_fts5 MATCH ? ORDER BY bm25(messages_fts5, 0, 1, 1, 1) LIMIT 10"
)
WITHOUT: dict[str, Callable[[], Any]] = {
    "": nullcontext,
    "authors": lambda: mock.patch.object(search_rank, "AUTHOR", 0.0),
    "what tells a time or a name": lambda: mock.patch.object(search_rank, "SPECIFIC", 0.0),
    "names' being worth less": lambda: mock.patch.object(search_rank, "NAME", 1.0),
    "dates": lambda: mock.patch.object(searching, "date_range", return_value=None),
    "what is told on the next days": lambda: mock.patch.object(searching, "TOLD_AFTER_MS", 0),
    "dates that messages name": lambda: mock.patch.object(searching, "NARROW_MS", 0),
    "authors, names' being worth less, dates and synonyms": lambda: without_all_four(),
    "neighbours": lambda: mock.patch.object(search_rank, "PARTS", ()),
    "what follows a question": lambda: mock.patch.object(search_rank, "ANSWERS", ()),
    "irregular forms": lambda: mock.patch.object(search_words, "forms_of", lambda word: frozenset({word})),
    "synonyms": lambda: mock.patch.object(searching, "synonyms", return_value=()),
    "stop words": lambda: mock.patch.object(search_words, "STOP_WORDS", frozenset()),
    "coverage": lambda: mock.patch.object(search_rank, "WHOLE", 0.0),
    "nearness": lambda: mock.patch.object(search_rank, "nearness", return_value=0.0),
    "a question's being worth less": lambda: mock.patch.object(search_rank, "QUESTION", 1.0),
    "length": lambda: mock.patch.object(search_rank, "B", 0.0),
}


@contextmanager
def without_all_four() -> Iterator[None]:
    """As the search was before it knew of them."""
    no_dates = mock.patch.object(searching, "date_range", return_value=None)
    no_synonyms = mock.patch.object(searching, "synonyms", return_value=())
    with constants(author=0.0, name=1.0, days=0), no_dates, no_synonyms:
        yield
