"""Agents are told what holds, and what held once only if they ask for it; an answer fits where it is shown."""

import json
from dataclasses import replace
from typing import Any

import pytest

from loom_worker.core.values.facts import Fact
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.core.values.tools import Caller, Outcome, Tool
from loom_worker.memory.recalled import Room
from loom_worker.memory.tier_tools import TierParts, as_text, as_told, ranked, tier_tools
from loom_worker.store.database import Database
from loom_worker.store.dated_summaries import DatedSummaries
from loom_worker.store.facts import Facts
from loom_worker.tools.execution import call_tool
from tests.unit.memory.talk import count
from tests.unit.store.facts_made import JOHN, MARIA, dated, session_of, states
from tests.unit.store.made import NOW_MS, WORKSPACE

DAY = 86_400_000


def parts(database: Database, *, room: int = 10_000, tiers: MemoryTiers | None = None) -> TierParts:
    return TierParts(tiers or MemoryTiers(), DatedSummaries(database), Facts(database), Room(room, count))


def outcome(given: TierParts, lane: str, name: str, /, **arguments: Any) -> Outcome:
    tool: Tool = next(each for each in tier_tools(given) if each.spec.name == name)
    caller = Caller(lane, "a", WORKSPACE, "turn_1", "toolu_1")
    return call_tool(tool, arguments, caller, timeout_s=30.0, pool=None, max_bytes=1_000_000)


def answer(given: TierParts, lane: str, name: str, /, **arguments: Any) -> dict[str, Any]:
    done = outcome(given, lane, name, **arguments)
    assert done.status == "completed", done
    read: dict[str, Any] = json.loads(done.content)
    return read


def test_what_is_superseded_is_told_only_as_history(database: Database) -> None:
    lane = session_of(database, MARIA, "a")
    states(database, lane, "user|lives in|Berlin", at=-9 * DAY)
    states(database, lane, "user|lives in|Paris", at=-DAY)
    states(database, lane, "user|likes|tea")
    held = answer(parts(database), lane, "memory_recall", topic="Where does she live?")
    assert [each["fact"] for each in held["facts"]] == ["user lives in Paris"]
    assert "Berlin" not in json.dumps(held)
    told = answer(parts(database), lane, "memory_recall", topic="live", history=True)
    [berlin] = told["history"]
    assert (berlin["fact"], berlin["holds"], berlin["since"], berlin["until"]) == (
        *("user lives in Berlin", False),
        *("2027-01-06", "2027-01-14"),
    )


def test_a_topic_that_nothing_is_known_of_gives_nothing(database: Database) -> None:
    lane = session_of(database, MARIA, "a")
    states(database, lane, "user|lives in|Berlin")
    assert answer(parts(database), lane, "memory_recall", topic="kite") == {"facts": []}
    assert "no word" in answer(parts(database), lane, "memory_recall", topic="?!")["note"]
    johns = session_of(database, JOHN, "b")
    assert answer(parts(database), johns, "memory_recall", topic="user lives in Berlin") == {"facts": []}


def test_summaries_are_given_for_a_range_of_dates(database: Database) -> None:
    lane = session_of(database, MARIA, "a")
    for n in range(3):
        dated(database, lane, "a", n=10 * n, day=31 * n)
    found = answer(parts(database), lane, "memory_summary", date_range="2027-02")
    assert found["summaries"] == [
        {"session": "a", "from": "2027-02-15", "to": "2027-02-15", "messages": 5, "summary": "notes 10"}
    ]
    assert len(answer(parts(database), lane, "memory_summary", date_range="2027-01..")["summaries"]) == 3


def test_a_range_that_is_none_says_what_to_give(database: Database) -> None:
    lane = session_of(database, MARIA, "a")
    failed = outcome(parts(database), lane, "memory_summary", date_range="when we met at the seaside")
    assert (failed.status, failed.code) == ("failed", "INVALID_INPUT")
    assert len(failed.content) <= 100
    assert "2024-05-01..2024-05-31" in failed.content


def test_an_answer_that_would_be_too_large_leaves_out_its_last_entries(database: Database) -> None:
    lane = session_of(database, MARIA, "a")
    for n in range(9):
        dated(database, lane, "a", n=10 * n, day=n)
        states(database, lane, f"user|likes|tea {n}")
    small = parts(database, room=400)
    for name, arguments in (("memory_summary", {"date_range": "2027"}), ("memory_recall", {"topic": "tea"})):
        text = outcome(small, lane, name, **arguments).content
        assert len(text) <= 400
        found = json.loads(text)
        shown = found["summaries" if name == "memory_summary" else "facts"]
        assert (len(shown) + found["left_out"], len(shown) > 0) == (9, True)


@pytest.mark.cases(
    "tiers, names",
    [
        (MemoryTiers(), ["memory_summary", "memory_recall"]),
        (MemoryTiers(has_summaries=False), ["memory_recall"]),
        (MemoryTiers(has_knowledge=False), ["memory_summary"]),
    ],
)
def test_only_tools_of_tiers_that_the_agent_has_are_offered(database: Database, tiers: MemoryTiers, names: Any) -> None:
    assert [tool.spec.name for tool in tier_tools(parts(database, tiers=tiers))] == names


def test_what_is_told_names_who_else_said_it() -> None:
    own = Fact("fact_0", "user", "likes", "tea", NOW_MS, None, None, 0.8, "conversation", "s", "m", NOW_MS, NOW_MS)
    theirs = replace(own, user="john")
    assert [as_told(each).get("said_by") for each in (own, theirs)] == [None, "john"]
    assert as_text([own, theirs], "turn_1").count("john") == 1


def test_rare_words_of_a_topic_count_more_and_open_facts_come_first() -> None:
    base = Fact("fact_0", "user", "likes", "tea", NOW_MS, None, None, 0.8, "conversation", "s", "m", NOW_MS, NOW_MS)
    facts = [
        replace(base, id=f"fact_{n}", object=object_, until_ms=until_ms)
        for n, (object_, until_ms) in enumerate(
            [("coffee", None), ("boats", None), ("jazz", None), ("sailing boats", NOW_MS), ("red boats", None)]
        )
    ]
    found = [fact.object for fact in ranked("does the user like red boats", facts, most=9)]
    assert found[:2] == ["red boats", "boats"]
    assert found[-1] == "sailing boats"
    assert "coffee" not in found
