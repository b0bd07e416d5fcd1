"""What a model wants to be kept in mind, over real sessions."""

import pytest

from loom_worker.core.values.json import Json
from loom_worker.store.database import Database
from tests.support.at_once import at_once
from tests.unit.memory.recall.made import Talk, answer, outcome, parts


@pytest.fixture
def talk(database: Database) -> Talk:
    talk = Talk(database)
    talk.say("hello", "hi")
    return talk


def update(talk: Talk, **arguments: object) -> Json:
    return answer(talk, "update_session_context", parts(talk.database), **arguments)


def test_facts_are_kept_and_the_answer_says_what_they_take(talk: Talk) -> None:
    done = update(talk, user="Ada, engineer", goals=["ship it"], preferences={"language": "German"}, notes={"n": 1})
    assert talk.kernel == {
        "user": "Ada, engineer",
        "goals": ["ship it"],
        "preferences": {"language": "German"},
        "notes": {"n": 1},
    }
    assert done["updated"] == ["goals", "notes", "preferences", "user"]
    assert 0 < done["tokens"] < done["budget_tokens"] == 1000


def test_members_are_set_one_by_one_and_goals_as_a_whole(talk: Talk) -> None:
    update(talk, goals=["a", "b"], preferences={"language": "German", "units": "SI"}, notes={"x": {"y": 1}})
    update(talk, goals=["c"], preferences={"units": "imperial", "tone": "dry"})
    assert talk.kernel == {
        "goals": ["c"],
        "preferences": {"language": "German", "units": "imperial", "tone": "dry"},
        "notes": {"x": {"y": 1}},
    }


def test_null_removes_a_member_or_a_whole_field_and_nothing_is_left_empty(talk: Talk) -> None:
    update(talk, user="Ada", goals=["a"], preferences={"language": "German", "units": "SI"}, notes={"n": 1})
    update(talk, preferences={"language": None}, notes={"n": None}, user=None)
    assert talk.kernel == {"goals": ["a"], "preferences": {"units": "SI"}}
    update(talk, preferences=None, goals=[])
    assert talk.kernel == {}


def test_what_a_client_keeps_there_stays(talk: Talk) -> None:
    talk.sessions.merge_kernel(talk.lane, {"project": "X", "notes": "plain text"}, fits=lambda _: None)
    update(talk, notes={"n": 1})
    assert talk.kernel == {"project": "X", "notes": {"n": 1}}


def test_more_than_its_share_is_refused_and_nothing_changes(talk: Talk) -> None:
    update(talk, goals=["short"])
    given = parts(talk.database, kernel=50)
    refused = outcome(talk, "update_session_context", given, goals=["word " * 100])
    text = refused.content
    assert (refused.status, refused.code) == ("failed", "INVALID_INPUT")
    assert "50 may be kept" in text
    assert len(text) <= 100
    assert talk.kernel == {"goals": ["short"]}


@pytest.mark.heavy
def test_calls_side_by_side_lose_none_of_their_members(talk: Talk) -> None:
    def work(number: int) -> None:
        for step in range(5):
            update(talk, preferences={f"p{number}-{step}": step})

    at_once(work, range(8))
    assert len(talk.kernel["preferences"]) == 40


def test_another_session_keeps_its_own(talk: Talk) -> None:
    other = Talk(talk.database, "s2")
    other.say("hello", "hi")
    update(talk, user="Ada")
    assert other.kernel == {}
