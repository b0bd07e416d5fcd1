"""Search by meaning: fused with the full text, within its scope, and by words alone where there are no vectors."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from loom_worker.core.errors import LoomError, Overloaded, ProviderFailed
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tiers import Scope
from loom_worker.llm.embeddings import Embedded, Embedder, MayBeSent, TextKind
from loom_worker.memory.recall_tools import RecallParts
from loom_worker.memory.recalled import Room
from loom_worker.memory.search_tool import SemanticParts, semantic_tool
from loom_worker.store.database import Database
from loom_worker.store.ledger import Ledger
from loom_worker.tools.execution import call_tool
from tests.unit.memory.recall.made import Talk, answer, parts, words
from tests.unit.memory.vectors import Told, embedding, searching
from tests.unit.store.made import NOW_MS, WORKSPACE

MEANINGS = {"car": (1.0, 0.0), "automobile": (1.0, 0.1), "banana": (0.0, 1.0), "fruit": (0.1, 1.0)}


class Thesaurus(Told):
    """Knows what some words mean."""

    def embed(self, texts: Sequence[str], *, kind: TextKind, timeout_s: float, may_be_sent: MayBeSent) -> Embedded:
        """See Embedder.embed."""
        usage = super().embed(texts, kind=kind, timeout_s=timeout_s, may_be_sent=may_be_sent).usage
        return Embedded(tuple(_meaning(text) for text in texts), usage)


def _meaning(text: str) -> tuple[float, float]:
    known = [MEANINGS[word] for word in text.lower().split() if word in MEANINGS]
    return known[0] if known else (0.7, 0.7)


def told(database: Database, session: str = "s1", *, user: str | None = None, texts: Sequence[str] = ()) -> Talk:
    """A session with vectors."""
    talk = Talk(database, session)
    talk.sessions.create(WORKSPACE, NewSession(session, user=user), now_ms=NOW_MS)
    talk.say(*(texts or ("I sold my automobile", "You did well", "and ate a banana")))
    embedding(database, Thesaurus()).embed(talk.sessions.get(WORKSPACE, session))
    return talk


def semantic(talk: Talk, embedder: Embedder | None, scope: Scope = "session", **arguments: Any) -> dict[str, Any]:
    """What the tool answers."""
    tool = semantic_tool(SemanticParts(searching(talk.database, embedder, scope), Room(10_000, words)))
    done = call_tool(tool, arguments, talk.caller, timeout_s=30.0, pool=None, max_bytes=1_000_000)
    assert done.status == "completed", done
    read: dict[str, Any] = json.loads(done.content)
    return read


def texts(found: dict[str, Any]) -> list[str]:
    return [entry["text"] for entry in found["found"]]


def test_what_was_said_in_other_words_is_found(database: Database) -> None:
    found = semantic(told(database), Thesaurus(), query="car", k=1)
    assert texts(found) == ["I sold my automobile"]
    assert found["ranked_by"] == "vectors"
    assert "note" not in found
    [entry] = found["found"]
    assert (entry["session"], entry["role"], entry["date"][:4]) == ("s1", "user", "2027")
    assert entry["after"] == ["assistant: You did well", "user: and ate a banana"]


def test_what_both_rankings_know_comes_first(database: Database) -> None:
    found = semantic(told(database), Thesaurus(), query="what did I sell: a car or an automobile")
    assert texts(found)[0] == "I sold my automobile"
    assert found["ranked_by"] == "fused"
    assert len(found["found"]) == 3


def test_a_scope_of_a_user_looks_into_all_sessions_of_the_user_and_no_other(database: Database) -> None:
    here = told(database, user="ada", texts=("hello",))
    told(database, "s2", user="ada", texts=("the automobile is red",))
    told(database, "s3", user="bob", texts=("an automobile of bob",))
    found = semantic(here, Thesaurus(), "user", query="car")
    assert {entry["session"] for entry in found["found"]} == {"s1", "s2"}
    assert texts(found)[0] == "the automobile is red"
    everywhere = semantic(here, Thesaurus(), "workspace", query="car")
    assert {entry["session"] for entry in everywhere["found"]} == {"s1", "s2", "s3"}
    assert texts(semantic(here, None, "user", query="automobile")) == ["the automobile is red"]


def test_without_embeddings_words_alone_are_looked_for_and_the_answer_says_so(database: Database) -> None:
    found = semantic(told(database), None, query="banana")
    assert texts(found)[0] == "and ate a banana"
    assert found["ranked_by"] == "bm25"
    assert "not enabled" in found["note"]


@pytest.mark.cases("error", [Overloaded("busy", None), ProviderFailed("no key")])
def test_a_provider_that_gives_no_vector_keeps_nobody_from_an_answer(error: LoomError, database: Database) -> None:
    session = f"s{type(error).__name__}"
    found = semantic(told(database, session), Told(fails=lambda _: error), query="banana")
    assert texts(found)[0] == "and ate a banana"
    assert found["ranked_by"] == "bm25"
    assert "scripted/hash" in found["note"]


def test_an_answer_says_how_many_messages_have_no_vector_yet(database: Database) -> None:
    talk = told(database)
    talk.say("something new")
    assert semantic(talk, Thesaurus(), query="car")["note"].startswith("1 messages have no vector yet")


def test_vectors_of_a_former_model_are_not_found(database: Database) -> None:
    new = Thesaurus(name="scripted/new")
    found = semantic(told(database), new, query="car")
    assert found["found"] == []
    assert found["note"].startswith("3 messages")


def test_an_empty_query_costs_nothing(database: Database) -> None:
    told_nothing = Thesaurus()
    assert semantic(told(database), told_nothing, query=" ")["found"] == []
    assert told_nothing.asked == []


def test_the_vector_of_a_query_is_charged_to_the_turn(database: Database) -> None:
    talk = told(database)
    semantic(talk, Thesaurus(), query="car")
    by_turn = {row["key"]: row for row in Ledger(database).totals(WORKSPACE, group_by="turn")}
    assert by_turn["turn_1"]["llm_calls"] == 1


def test_a_session_that_is_deleted_is_not_searched(database: Database) -> None:
    talk = told(database)
    caller = talk.caller
    talk.sessions.delete(WORKSPACE, "s1")
    tool = semantic_tool(SemanticParts(searching(database, Thesaurus()), Room(10_000, words)))
    done = call_tool(tool, {"query": "car"}, caller, timeout_s=30.0, pool=None, max_bytes=1_000_000)
    assert (done.status, done.code) == ("failed", "ERROR_NOT_FOUND")


def recall(database: Database, embedder: Embedder | None) -> RecallParts:
    semantic = None if embedder is None else searching(database, embedder)
    return replace(parts(database), semantic=semantic)


def test_a_search_by_words_is_fused_with_what_is_near(database: Database) -> None:
    talk = told(database)
    talk.leave()
    found = answer(talk, "search_conversation", recall(database, Thesaurus()), query="car")
    assert texts(found)[0] == "I sold my automobile"
    assert found["ranked_by"] == "vectors"
    assert found["recalled"]["added"] == 3
    assert texts(answer(talk, "search_conversation", recall(database, None), query="car")) == []


def test_a_search_by_words_stays_as_it_is_where_the_provider_is_down(database: Database) -> None:
    talk = told(database)
    down = recall(database, Told(fails=lambda _: Overloaded("busy", None)))
    expected = answer(talk, "search_conversation", recall(database, None), query="banana")
    assert answer(talk, "search_conversation", down, query="banana") == expected
