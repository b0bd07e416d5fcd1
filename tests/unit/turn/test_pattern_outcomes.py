"""Which patterns a turn used, and whether that speaks for them."""

from typing import Any

import pytest

from loom_worker.core.values.calls import Call
from loom_worker.core.values.patterns import Effect, PatternUse
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.turns import Claim, Ending, Turn, TurnStatus
from loom_worker.store.patterns import PatternUses
from loom_worker.turn.agent_runtime import PromptContext
from loom_worker.turn.ending import has_succeeded, patterns_of, uses
from loom_worker.turn.state import TurnState
from tests.support.models import says, wants
from tests.support.stage import WORKSPACE, Stage, StageKnowledge

TOP = {"id": "sql/top_n", "score": 0.5, "version": "v1"}
VERSIONS = {"sql/trend": "v2", "sql/top_n": "v1"}


def work(*calls: Call, patterns: tuple[Any, ...] = (TOP,)) -> TurnState:
    turn = Turn("turn_1", "lane", "s1", "w", "default", 1, "in_progress", "How many?", 1, calls=calls)
    claim = Claim(turn, (), rom=None, kernel={}, choice=Choice(), user=None)
    return TurnState.begin(claim).matched("Today.", "", patterns)


def loading(pattern_id: str, n: int = 0, **call: Any) -> Call:
    given = {"status": "completed", "position": n, "reply_n": 1, **call}
    return Call(f"toolu_{n}", given.pop("name", "load_pattern"), {"id": pattern_id}, **given)


def test_what_the_model_loads_itself_is_used_beside_what_was_matched() -> None:
    found = patterns_of(work(loading("sql/trend")), VERSIONS.get)
    assert found == (TOP, {"id": "sql/trend", "score": None, "version": "v2", "how": "loaded"})
    assert uses(found) == (PatternUse("sql/top_n", "v1", "matched"), PatternUse("sql/trend", "v2", "loaded"))


@pytest.mark.cases(
    "calls",
    {
        "it is beside the question already": (loading("sql/top_n"),),
        "it failed": (loading("sql/trend", status="failed"),),
        "another tool has such an argument": (loading("sql/trend", name="refund"),),
        "it is gone meanwhile": (loading("sql/gone"),),
    }.items(),
    ids=lambda pair: pair[0],
)
def test_a_call_that_brought_no_pattern_is_no_use(calls: tuple[str, tuple[Call, ...]]) -> None:
    assert patterns_of(work(*calls[1]), VERSIONS.get) == (TOP,)


def test_a_pattern_that_is_loaded_twice_is_used_once() -> None:
    found = patterns_of(work(loading("sql/trend"), loading("sql/trend", 1)), VERSIONS.get)
    assert [each["id"] for each in found] == ["sql/top_n", "sql/trend"]


def test_patterns_of_turns_from_before_there_were_versions_are_not_counted() -> None:
    assert uses(({"id": "sql/top_n", "score": 0.5},)) == ()


@pytest.mark.cases(
    ("status", "reason", "expected"),
    [
        ("completed", None, True),
        ("cancelled", None, None),
        ("failed", "provider", None),
        ("failed", "dead", None),
        ("failed", "budget", None),
        ("incomplete", "deadline", None),
        ("incomplete", "limits", False),
        ("incomplete", "max_tokens", False),
        ("failed", "refusal", False),
    ],
)
def test_a_turn_speaks_for_its_patterns_unless_it_ended_for_other_reasons(
    status: TurnStatus, reason: str | None, expected: bool | None
) -> None:
    assert has_succeeded(Ending(status, reason)) is expected


def test_the_end_of_a_turn_counts_its_patterns_once_and_names_them(stage: Stage) -> None:
    stage.model.scenes = [wants(("note", {})), says("42")]
    turn = stage.submit()
    done = stage.serve(turn, stage.worker("w1"))
    stage.serve(turn, stage.worker("w2"))  # a wake-up that is sent again
    assert [each["id"] for each in done.patterns] == ["sql/top_n"]
    effect, all_time = PatternUses(stage.database).effect(WORKSPACE, "sql/top_n", "v1")
    assert effect == all_time
    assert (effect.uses, effect.succeeded, effect.failed) == (1, 1, 0)
    assert effect.tokens == done.usage.tokens


def test_a_turn_without_patterns_counts_nothing(stage: Stage) -> None:
    stage.answered(says("42"), by=stage.worker("w1", knowledge=StageKnowledge(PromptContext("Today is Sunday."))))
    assert PatternUses(stage.database).effect(WORKSPACE, "sql/top_n", "v1") == (Effect(), Effect())


def test_a_turn_of_another_workspace_is_none_of_ours(stage: Stage) -> None:
    stage.answered(says("42"))
    assert PatternUses(stage.database).effect("elsewhere", "sql/top_n", "v1") == (Effect(), Effect())


def test_readers_hear_of_skills_and_the_system_text_tells_of_them(stage: Stage) -> None:
    stage.model.scenes = [says("42"), says("43")]
    told = ({"name": "infra-ops", "how": "manual"},)
    knowledge = StageKnowledge(PromptContext("Infra.", (), told), "Skills: infra-ops.")
    worker = stage.worker("w1", knowledge=knowledge)
    turn = stage.submit()
    stage.serve(turn, worker)
    assert "skill.used" in stage.told(turn)
    knowledge.standing_text = "Skills: none."
    stage.serve(stage.submit(), worker)
    first, second = stage.model.asked
    assert first.system == second.system
    assert "Skills: infra-ops." in first.system
