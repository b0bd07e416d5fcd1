"""PostgreSQL's index finds what SQLite's finds: one question, asked of both, over the same messages."""

import gzip
import json
import os
from collections.abc import Callable
from itertools import count as numbers
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from bench.search import moment_ms
from loom_worker.core.values.chat import ChatMessage, Role, ToolOutcome, ToolUse
from loom_worker.core.values.pages import Hit
from loom_worker.store import search_index
from loom_worker.store.database import Database
from loom_worker.store.engines import postgresql_search
from loom_worker.store.journal import Journal
from loom_worker.store.schema import messages
from loom_worker.store.search import TOOLS_OF_MEMORY, Search
from loom_worker.store.search_index import SearchedLanes
from loom_worker.store.search_words import Term, terms
from loom_worker.store.sessions import Sessions
from loom_worker.store.vectors import MessageVectors, Reach
from tests.integration.search.conftest import Mirror
from tests.integration.search.test_search_recall import load, shown
from tests.unit.store.made import NOW_MS, WORKSPACE, final, message, running

DATA = os.environ.get("LOOM_TEST_DATA")
Mirrored = Callable[[Database], Any]
_ids = numbers()


def tell(database: Database, *chats: ChatMessage, session: str = "s1") -> None:
    claim = running(database, session)
    said = tuple(message(next(_ids), claim, chat=chat) for chat in chats)
    Journal(database).finish(claim, final(said=said))


def say(database: Database, *texts: str, session: str = "s1") -> None:
    roles: tuple[Role, ...] = ("user", "assistant")
    tell(database, *(ChatMessage(roles[n % 2], text) for n, text in enumerate(texts)), session=session)


def hits(database: Any, question: str, **how: Any) -> tuple[Hit, ...]:
    return Search(database).session(WORKSPACE, "s1", question, limit=10, **how)


def held(database: Any, wanted: tuple[Term, ...], *, size: int = 8, session: str = "s1") -> list[list[int]]:
    """By term the messages of a session that hold it."""
    with database.read() as tx:
        lane = tx.execute(select(messages.c.lane).where(messages.c.session_id == session)).scalars().first()
        return [sorted(each) for each in search_index.holding(tx, SearchedLanes((lane,), size), wanted)]


@pytest.mark.heavy
@pytest.mark.takes(30)
@pytest.mark.skipif(DATA is None, reason="LOOM_TEST_DATA, which names the dialogues, is not set")
def test_the_first_hits_and_the_recall_are_those_of_sqlite(database: Database, mirrored: Mirrored) -> None:
    dialogues = json.loads(gzip.decompress((Path(str(DATA)) / "dialogues" / "dialogues3.json.gz").read_bytes()))
    for dialogue in dialogues:
        load(database, dialogue)
    both, same, shares = (database, mirrored(database)), [], ([], [])  # type: ignore[var-annotated]
    for dialogue in dialogues:
        now_ms = moment_ms(dialogue["messages"][-1]["time"])
        for asked in dialogue["questions"]:
            wanted = {f"{dialogue['id']}/{each}" for each in asked["evidence"]}
            found = [
                Search(each).session(WORKSPACE, dialogue["id"], asked["question"], limit=10, now_ms=now_ms)
                for each in both
            ]
            first = [[hit.message_id for hit in each[:1]] for each in found]
            same.append(first[0] == first[1])
            for share, each in zip(shares, found, strict=True):
                share.append(len(wanted & shown(each)) / len(wanted))
    assert len(same) == 412
    assert sum(same) / len(same) >= 0.99
    assert abs(sum(shares[0]) - sum(shares[1])) / len(same) <= 0.005


@pytest.mark.cases(
    ("said", "question"),
    [
        ("We bought a boat", "What are they buying?"),
        ("see ERR-1234 in the log", "ERR-1234?"),
        ("write to me@example.com", "me@example.com"),
        ("the host is www.example.com, the file a/b/c.txt", "example c.txt"),
        ("-12.5 degrees at -7", "12.5 or 7 degrees"),
        ("commit 1e5f22 and 12e7abc", "1e5f22 12e7abc"),
        ("1e5 is a number, 1E5 too", "1e5"),
        ("C'est un café à Malmö, Ĳsselmeer, ÅNGSTRÖM", "cafe malmo angstrom"),
        ("İstanbul'da — „schön“ … straße", "istanbul schon straße"),
        ("ΕΛΛΑΔΑ и Москва", "ελλαδα москва"),
        ("He said: NOT (now) OR never*", 'NOT "now" OR (never*'),
        ("'quoted' \\ 'twice''", "'quoted' \\"),
        ("我下个月去北京旅行", "我们什么时候去北京？"),
        ("我养了一只猫", "猫"),
        ("買ったiPhoneケース", "iPhone"),
        ("내일 서울에 갑니다", "서울"),
        ("party 🎉 at nine", "🎉 party!"),
        ("snake_case_name and kebab-case-name", "snake_case_name kebab-case-name"),
    ],
)
def test_each_word_is_held_by_the_messages_that_hold_it_in_sqlite(
    database: Database, mirrored: Mirrored, said: str, question: str
) -> None:
    say(database, "nothing of the sort, 12 e7 1e5", "完全に別の話", said, "and 1e5f2 on", "case name", "text c b a")
    say(database, said, session="s2")
    mirror, wanted = mirrored(database), terms(question)
    assert any(held(database, wanted))
    assert held(mirror, wanted) == held(database, wanted)
    assert hits(mirror, question) == hits(database, question)


@pytest.mark.parametrize("question", ["", "?", "🎉", "'", "\\", "²", "½ | ²", "⑫"])
def test_a_question_without_a_letter_finds_nothing(database: Database, mirrored: Mirrored, question: str) -> None:
    say(database, "🎉 ' \" ? \\")
    assert hits(mirrored(database), question) == ()


def test_tools_are_found_as_in_sqlite(database: Database, mirrored: Mirrored) -> None:
    use = ToolUse("t1", "execute_sql", {"sql": "SELECT revenue FROM orders", "more": "x" * 3000 + " Sweden"})
    gave = ToolOutcome("t1", "execute_sql", '{"country": "Norway"}' + "x" * 3000 + " Iceland")
    tell(database, ChatMessage("user", "Go on"), ChatMessage("assistant", tool_uses=(use, use)))
    tell(database, ChatMessage("tool", outcomes=(gave,)), ChatMessage("assistant", "Most of it came from abroad."))
    for tool in TOOLS_OF_MEMORY:
        again, outcome = ToolUse("t2", tool, {"query": "revenue of Norway"}), ToolOutcome("t2", tool, "revenue, Norway")
        tell(database, ChatMessage("assistant", tool_uses=(again,)), ChatMessage("tool", outcomes=(outcome,)))
    mirror, wanted = mirrored(database), terms("execute_sql revenue orders Norway Sweden Iceland query")
    assert held(mirror, wanted) == held(database, wanted)
    assert [len(each) for each in held(mirror, wanted)] == [1, 1, 1, 1, 1, 1, 0, 0, 0]


def test_the_index_follows_changes_and_deletions(database: Database, mirrored: Mirrored) -> None:
    say(database, "red 猫咪", "blue")
    mirror = mirrored(database)
    with mirror.write() as tx:
        tx.execute(update(messages).where(messages.c.content == "blue").values(content="green"))
        tx.execute(delete(messages).where(messages.c.content == "red 猫咪"))
    assert [len(each) for each in held(mirror, terms("blue green red 猫咪"))] == [0, 1, 0, 0]


def test_text_of_any_length_is_taken_and_its_first_part_found(database: Database, mirrored: Mirrored) -> None:
    rare = " ".join(chr(0x20000 + n) for n in range(40_000))  # four bytes each, and all words differ
    say(database, f"begin {rare} {rare}", "x" * 3_000 + " " + "word " * 50_000 + "end")
    mirror = mirrored(database)
    assert [len(each) for each in held(mirror, terms("begin word end"))] == [1, 1, 0]


def test_in_a_long_session_the_newest_are_found_however_far_back(
    database: Database, mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(database, *(f"{'rare ' * (n < 3)}{'often' * (n % 2)}" for n in range(40)))
    say(database, *("often rare" for _ in range(40)), session="s2")
    monkeypatch.setattr(search_index, "MOST_ROWS", 8)
    mirror, wanted, size = mirrored(database), terms("often rare"), postgresql_search.SHORT + 1
    expected = held(database, wanted, size=size)
    assert [len(each) for each in expected] == [4, 3]
    for long in (search_index.LONG + 1, size):
        assert held(mirror, wanted, size=long) == expected
    with mirror.write() as tx:
        for n in (10, 20):  # some of ours far behind the rest
            later = messages.c.session_id == "s1", messages.c.content == "often", messages.c.n > n
            tx.execute(update(messages).where(*later).values(n=messages.c.n + n * 1000))
    for windows in ((("block", 12), ("part", 15)), (("block", 12),), ()):
        monkeypatch.setattr(postgresql_search, "WINDOWS", windows)
        assert [len(each) for each in held(mirror, wanted, size=size)] == [4, 3]


@pytest.mark.parametrize("sparse", [0, 16])
@pytest.mark.parametrize("few", [0, 4], ids=["as one of many", "as one of few"])
def test_the_newest_are_found_whatever_stands_around_them(
    database: Database, mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch, few: int, sparse: int
) -> None:
    for n in range(4):
        say(database, f"often {n}", "rare" if n < 2 else "often")
        say(database, *("often rare" for _ in range(9)), session="s2")
    monkeypatch.setattr(search_index, "MOST_ROWS", 8)
    monkeypatch.setattr(postgresql_search, "FEW", few)
    monkeypatch.setattr(postgresql_search, "SPARSE", sparse)
    wanted, mirror = terms("often rare"), mirrored(database)
    for size in (search_index.LONG + 1, postgresql_search.SHORT + 1):
        expected = held(database, wanted, size=size)
        assert [len(each) for each in expected] == [4, 2]
        assert held(mirror, wanted, size=size) == expected


def test_vectors_are_compared(database: Database, mirrored: Mirrored) -> None:
    say(database, "east", " \n", "north")
    lane, vectors = Sessions(database).get(WORKSPACE, "s1").lane, MessageVectors(database)
    due = vectors.unembedded(lane, "m", limit=9, most_chars=100)
    found = dict(zip(due.texts, [(1.0, 0.0), (0.0, 1.0)], strict=True))
    assert vectors.add(lane, "m", due, found, charge=None, now_ms=NOW_MS)
    mirror = MessageVectors(mirrored(database))
    near, ours = (dict(each.nearest(Reach(lane), "m", (0.1, 1.0), k=9)) for each in (mirror, vectors))
    assert list(near) == list(due.texts)[::-1]
    assert near == pytest.approx(ours, abs=0.01)
    assert mirror.nearest(Reach(lane), "other", (0.1, 1.0), k=9) == ()


def test_a_mirror_holds_nothing_else(database: Database, mirrored: Mirrored) -> None:
    say(database, "mine is red", session="s1")
    mirror: Mirror = mirrored(database)
    with mirror.read() as tx:
        assert tx.execute(select(messages.c.content)).scalars().all() == ["mine is red"]
