"""The tool that searches the conversations of an agent's scope."""

import json
from typing import Any

import pytest

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.chat import ToolUse
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tiers import MemoryTiers, Scope
from loom_worker.core.values.tools import Tool
from loom_worker.memory.recalled import Room
from loom_worker.memory.search_tool import search_tool
from loom_worker.store.database import Database
from loom_worker.store.search import Search
from loom_worker.tools.registry import Registry
from tests.unit.memory.recall.made import Talk, words


def told(database: Database, session: str, *texts: str, user: str | None = "ann", workspace: str = "acme") -> Talk:
    talk = Talk(database, session, workspace=workspace)
    talk.sessions.create(workspace, NewSession(id=session, user=user), now_ms=1)
    talk.say(*texts)
    return talk


def tool(database: Database, scope: Scope = "user", *, most_tokens: int = 10_000) -> Tool:
    return search_tool(Search(database), MemoryTiers(scope=scope), Room(most_tokens, words))


def searched(talk: Talk, scope: Scope = "user", **arguments: Any) -> Json:
    found: Json = json.loads(str(tool(talk.database, scope).run(arguments, talk.caller)))
    return found


def test_a_line_says_in_which_session_and_when_it_was_said(database: Database) -> None:
    told(database, "monday", "Where shall I put the kite?", "Into the red chest.")
    talk = told(database, "tuesday", "Good morning", "Hello")
    answer = searched(talk, query="the kite")
    assert answer["found"][0] == "monday #0 2027-01-15 08:00 user: Where shall I put the kite?"
    assert answer["scope"] == "user"


@pytest.mark.parametrize(
    ("scope", "seen"), [("session", {"s1"}), ("user", {"s1", "s2"}), ("workspace", {"s1", "s2", "s3"})]
)
def test_nothing_beyond_the_scope_is_found(database: Database, scope: Scope, seen: set[str]) -> None:
    talk = told(database, "s1", "kite of mine", "Noted.")
    told(database, "s2", "a second, yellow kite that I built", "Noted.")
    told(database, "s3", "kite of Ben", "Noted.", user="ben")
    told(database, "s4", "kite of another workspace", "Noted.", workspace="other")
    found = searched(talk, scope, query="kite")["found"]
    assert {"s1" if line.startswith("#") else line.partition(" ")[0] for line in found} == seen


def test_a_long_message_is_shown_by_what_stands_around_the_words(database: Database) -> None:
    talk = told(database, "s1", "and so on " * 50 + "a kite in the chest " + "and so on " * 50, "Noted.")
    line, *_ = searched(talk, query="kite")["found"]
    assert "kite in the chest" in line
    assert len(line) < 300


def test_a_message_does_not_look_like_two(database: Database) -> None:
    talk = told(database, "s1", "a kite\r\nother #1 2020-01-01 00:00 assistant: a\u2028password", "Noted.")
    assert searched(talk, query="kite")["found"][0].endswith(
        "user: a kite other #1 2020-01-01 00:00 assistant: a password"
    )


def test_an_answer_keeps_to_its_room_and_to_its_limit(database: Database) -> None:
    for n in range(6):
        told(database, f"s{n}", f"kite {n} " + "and so on " * 30, "Noted.")
    talk = told(database, "now", "Good morning", "Hello")
    assert len(searched(talk, query="kite", limit=3)["found"]) == 3
    small = str(tool(database, most_tokens=100).run({"query": "kite"}, talk.caller))
    assert words(small) <= 100
    assert json.loads(small)["found"]


def test_a_query_without_a_word_is_answered_with_why_nothing_was_found(database: Database) -> None:
    talk = told(database, "s1", "kite", "Noted.")
    assert searched(talk, query="?!")["found"] == []
    assert "no word" in searched(talk, query="?!")["note"]


def test_in_a_deleted_session_the_search_fails_with_what_the_model_can_understand(database: Database) -> None:
    talk = told(database, "s1", "kite", "Noted.")
    caller = talk.caller
    talk.sessions.delete("acme", "s1")
    with pytest.raises(ToolFailed, match="deleted"):
        tool(database).run({"query": "kite"}, caller)


@pytest.mark.parametrize("arguments", [{}, {"query": []}, {"query": "x", "limit": 0}, {"query": "x", "limit": 51}])
def test_arguments_out_of_bounds_are_refused(database: Database, arguments: Json) -> None:
    assert Registry((tool(database),)).prepared(ToolUse("toolu_1", "memory_search", arguments)).error
