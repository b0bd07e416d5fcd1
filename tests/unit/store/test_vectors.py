"""Vectors of messages: each message has one, they are found by nearness, and never outside of their scope."""

import math
from collections.abc import Sequence
from contextlib import closing
from itertools import count as numbers

import pytest
from sqlalchemy import delete

from loom_worker.core.values.budgets import usd
from loom_worker.core.values.chat import ChatMessage, Usage
from loom_worker.core.values.sessions import NewSession
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.engines.move_ends import opened
from loom_worker.store.journal import Journal
from loom_worker.store.ledger import Charge, Ledger
from loom_worker.store.move import TABLES
from loom_worker.store.schema import messages
from loom_worker.store.sessions import Sessions
from loom_worker.store.vector_scan import NumpyScan, Pgvector, VectorScan, packed, scan_of
from loom_worker.store.vectors import MessageVectors, Reach, Unembedded
from tests.support import store_postgres
from tests.unit.store.made import NOW_MS, WORKSPACE, final, message, running

MODEL = "scripted/hash"
_ids = numbers()
EAST, NORTH, NORTHEAST, WEST = (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (-1.0, 0.0)


def told(
    database: Database, *texts: str, session: str = "s1", user: str | None = None, workspace: str = WORKSPACE
) -> str:
    """A session in which these were said; its lane."""
    sessions = Sessions(database)
    if session not in {one.id for one in sessions.page(workspace, limit=50, after=None).items}:
        sessions.create(workspace, NewSession(session, user=user), now_ms=NOW_MS)
    claim = running(database, session, workspace=workspace)
    chats = (ChatMessage(("user", "assistant")[n % 2], text) for n, text in enumerate(texts))
    Journal(database).finish(claim, final(said=tuple(message(next(_ids), claim, chat=chat) for chat in chats)))
    return sessions.get(workspace, session).lane


def embed(database: Database, lane: str, found: Sequence[Sequence[float]], *, model: str = MODEL) -> list[int]:
    """Store these vectors for the next messages; the numbers of those."""
    vectors = MessageVectors(database)
    due = vectors.unembedded(lane, model, limit=len(found), most_chars=100)
    assert vectors.add(lane, model, due, dict(zip(due.texts, found, strict=True)), charge=None, now_ms=NOW_MS)
    return list(due.texts)


OWN = {"sqlite": "sqlite-vec", "postgresql": "numpy", "pgvector": "pgvector"}


@pytest.fixture(params=["own", "numpy"])
def scan(request: pytest.FixtureRequest, database: Database, engine: str) -> VectorScan:
    """What the database has, and what is there in any case."""
    with database.read() as tx:
        own = scan_of(tx)  # loads sqlite-vec into the connection
    assert own.name == OWN[engine]
    return own if request.param == "own" else NumpyScan()


class TestBothScans:
    def nearest(self, database: Database, lane: str, query: Sequence[float], scan: VectorScan, k: int = 9) -> list[int]:
        return [n for n, _ in MessageVectors(database, scan=scan).nearest(Reach(lane), MODEL, query, k=k)]

    def test_the_nearest_comes_first(self, database: Database, scan: VectorScan) -> None:
        lane = told(database, "a", "b", "c", "d")
        east, north, northeast, west = embed(database, lane, [EAST, NORTH, NORTHEAST, WEST])
        assert self.nearest(database, lane, (1.0, 0.1), scan) == [east, northeast, north, west]
        assert self.nearest(database, lane, (0.1, 1.0), scan, k=2) == [north, northeast]

    def test_cosines_are_those_of_the_vectors(self, database: Database, scan: VectorScan) -> None:
        lane = told(database, "a")
        embed(database, lane, [[0.3, -0.7, 0.2, 0.01]])
        self.nearest(database, lane, [1.0] * 4, scan)
        [(_, cosine)] = MessageVectors(database, scan=scan).nearest(Reach(lane), MODEL, [0.5, -0.1, 0.9, 0.4], k=1)
        exact = (0.15 + 0.07 + 0.18 + 0.004) / math.sqrt((0.09 + 0.49 + 0.04 + 0.0001) * (0.25 + 0.01 + 0.81 + 0.16))
        assert cosine == pytest.approx(exact, abs=0.01)

    def test_vectors_of_other_models_and_lengths_are_not_compared(self, database: Database, scan: VectorScan) -> None:
        lane = told(database, "a", "b")
        embed(database, lane, [EAST, NORTH], model="scripted/other")
        assert self.nearest(database, lane, EAST, scan) == []
        [first, second] = embed(database, lane, [EAST, (1.0, 0.0, 0.0)])
        assert self.nearest(database, lane, EAST, scan) == [first]
        assert self.nearest(database, lane, (1.0, 0.0, 0.0), scan) == [second]

    def test_a_vector_of_zeros_is_near_to_nothing(self, database: Database, scan: VectorScan) -> None:
        lane = told(database, "a", "b")
        [_, east] = embed(database, lane, [(0.0, 0.0), EAST])
        assert self.nearest(database, lane, EAST, scan) == [east]


@pytest.mark.heavy
def test_vectors_that_no_trigger_has_seen_are_compared_byte_for_byte(pgvector_url: str) -> None:
    """Those that a move brought, and those that were there before the extension."""
    every_byte = [n / 127 for n in range(-127, 128)]
    with closing(Database(store_postgres.emptied(pgvector_url))) as database:
        lane = told(database, "a")
        [n] = embed(database, lane, [every_byte])
        with database.write(lock=WHOLE) as tx:
            tx.exec_driver_sql("DELETE FROM message_embeddings")
        nearest = MessageVectors(database, scan=Pgvector()).nearest
        assert nearest(Reach(lane), MODEL, every_byte, k=1) == ()
        with opened(pgvector_url) as end, end.transaction():
            end.finish(TABLES)
        assert nearest(Reach(lane), MODEL, every_byte, k=1) == ((n, pytest.approx(1.0)),)


@pytest.mark.cases("wrong", [[], [float("nan"), 1.0], [1.0, float("nan")], [float("inf")], [0.1] * 8_193])
def test_what_is_no_vector_is_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match=r"finite|dimensions"):
        packed(wrong)


def test_only_what_users_and_assistants_said_is_embedded_each_message_once(database: Database) -> None:
    lane = told(database, "first", "  ", "third")
    vectors = MessageVectors(database)
    due = vectors.unembedded(lane, MODEL, limit=9, most_chars=3)
    assert list(due.texts.values()) == ["fir", "thi"]
    found = dict.fromkeys(due.texts, EAST)
    assert vectors.add(lane, MODEL, due, found, charge=None, now_ms=NOW_MS)
    assert not vectors.add(lane, MODEL, due, found, charge=None, now_ms=NOW_MS)
    assert vectors.unembedded(lane, MODEL, limit=9, most_chars=3).texts == {}
    assert vectors.embedded(lane, MODEL) == 2


def test_what_a_late_worker_spent_is_charged_though_its_vectors_count_for_nothing(database: Database) -> None:
    lane = told(database, "first")
    vectors = MessageVectors(database)
    due = vectors.unembedded(lane, MODEL, limit=9, most_chars=9)
    spent = Usage(input_tokens=3, cost_usd=usd(1), llm_calls=1)
    charge = Charge(WORKSPACE, "s1", "default", MODEL, spent, kind="embedding")
    for _ in range(2):
        vectors.add(lane, MODEL, due, dict.fromkeys(due.texts, EAST), charge=charge, now_ms=NOW_MS)
    totals = {row["key"]: row for row in Ledger(database).totals(WORKSPACE, group_by="kind")}
    assert totals["embedding"]["llm_calls"] == 2


def test_another_model_replaces_the_vectors_a_batch_at_a_time(database: Database) -> None:
    lane = told(database, "a", "b", "c")
    embed(database, lane, [EAST, EAST, EAST])
    vectors, reach = MessageVectors(database), Reach(lane)
    assert (vectors.left(reach, MODEL), vectors.left(reach, "scripted/new")) == (0, 3)
    embed(database, lane, [NORTH, NORTH], model="scripted/new")
    assert vectors.left(reach, "scripted/new") == 1
    assert (vectors.embedded(lane, "scripted/new"), vectors.embedded(lane, MODEL)) == (2, 1)


def test_a_scope_holds_what_its_name_says_and_no_more(database: Database) -> None:
    mine = told(database, "mine", user="ada")
    lanes = {
        "other session": told(database, "hers too", session="s2", user="ada"),
        "other user": told(database, "theirs", session="s3", user="bob"),
        "other workspace": told(database, "foreign", session="s4", user="ada", workspace="globex"),
    }
    of = {lane: embed(database, lane, [EAST])[0] for lane in (mine, *lanes.values())}
    vectors = MessageVectors(database)
    expected = {
        "session": {mine},
        "user": {mine, lanes["other session"]},
        "workspace": {*of} - {lanes["other workspace"]},
    }
    for scope, within in expected.items():
        reach = Reach(mine, scope)
        wanted = {of[lane] for lane in within}
        assert {n for n, _ in vectors.nearest(reach, MODEL, EAST, k=9)} == wanted
        assert vectors.lanes(reach, list(of.values())).keys() == wanted
        assert vectors.left(reach, "scripted/new") == len(wanted)


def test_a_session_without_a_user_is_alone_in_its_users_scope(database: Database) -> None:
    mine, other = told(database, "mine"), told(database, "other", session="s2")
    for lane in (mine, other):
        embed(database, lane, [EAST])
    [(n, _)] = MessageVectors(database).nearest(Reach(mine, "user"), MODEL, EAST, k=9)
    assert MessageVectors(database).lanes(Reach(mine, "user"), [n]) == {n: mine}


def test_what_is_deleted_is_found_by_nobody_and_its_vectors_go(database: Database) -> None:
    mine, other = told(database, "mine", user="ada"), told(database, "other", session="s2", user="ada")
    for lane in (mine, other):
        embed(database, lane, [EAST])
    vectors, sessions = MessageVectors(database), Sessions(database)
    due = Unembedded(1, 2, {1: "mine"})
    sessions.delete(WORKSPACE, "s1")
    assert vectors.nearest(Reach(mine), MODEL, EAST, k=9) == ()
    assert vectors.left(Reach(mine, "workspace"), MODEL) == 0
    assert vectors.lanes(Reach(mine), [1]) == {}
    assert vectors.unembedded(mine, "scripted/new", limit=9, most_chars=9).texts == {}
    assert len(vectors.nearest(Reach(other, "user"), MODEL, EAST, k=9)) == 1
    assert not vectors.add(mine, MODEL, due, {1: EAST}, charge=None, now_ms=NOW_MS)
    while sessions.purge():
        pass
    with database.read() as tx:
        for table in ("message_vectors", "embedding_cursors"):
            assert tx.exec_driver_sql(f"SELECT DISTINCT lane FROM {table}").scalars().all() == [other]


def test_a_message_that_is_gone_meanwhile_gets_no_vector(database: Database) -> None:
    lane = told(database, "a", "b")
    vectors = MessageVectors(database)
    due = vectors.unembedded(lane, MODEL, limit=9, most_chars=9)
    gone, kept = due.texts
    with database.write(lock=WHOLE) as tx:
        tx.execute(delete(messages).where(messages.c.n == gone))
    assert vectors.add(lane, MODEL, due, {gone: EAST, kept: NORTH}, charge=None, now_ms=NOW_MS)
    assert [n for n, _ in vectors.nearest(Reach(lane), MODEL, EAST, k=9)] == [kept]


def test_a_vector_goes_with_its_message(database: Database) -> None:
    lane = told(database, "a", "b")
    gone, kept = embed(database, lane, [EAST, EAST])
    with database.write(lock=WHOLE) as tx:
        tx.execute(delete(messages).where(messages.c.n == gone))
    assert [n for n, _ in MessageVectors(database).nearest(Reach(lane), MODEL, EAST, k=9)] == [kept]
    assert MessageVectors(database).embedded(lane, MODEL) == 1
