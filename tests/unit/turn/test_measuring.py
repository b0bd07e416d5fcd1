"""What a turn adds to the metrics once it has ended."""

from dataclasses import replace

from loom_worker.core import metrics
from loom_worker.core.errors import ProviderFailed
from loom_worker.core.values.audit import NOT_RUN
from loom_worker.core.values.judges import Panel, PanelMember
from tests.support.counting import Counted, cells_of
from tests.support.models import says, wants
from tests.support.stage import Stage

SECOND_MS = 1_000


def test_how_long_a_turn_waited_and_ran_is_observed_when_it_has_ended(stage: Stage, counted: Counted) -> None:
    stage.model.scenes = [[lambda: setattr(stage, "now_ms", stage.now_ms + 2 * SECOND_MS), *says("Done.")]]
    turn = stage.submit()
    stage.now_ms += 7 * SECOND_MS
    stage.serve(turn, stage.worker("w1"))
    assert [cells_of(family)[()][0] for family in (metrics.TURN_QUEUE_WAIT, metrics.TURN_FIRST_TOKEN)] == [7, 9]
    assert cells_of(metrics.TURN_DURATION)["completed",][0] == 9
    assert counted(metrics.TURN_RUN) == {("completed",): 1}


def test_a_turn_that_fails_is_observed_without_what_it_never_had(stage: Stage, counted: Counted) -> None:
    stage.answered([ProviderFailed("bad key")])
    assert counted(metrics.TURN_DURATION) == {("failed",): 1}
    assert counted(metrics.TURN_FIRST_TOKEN) == {}


def test_nothing_is_observed_before_a_turn_has_ended(stage: Stage, counted: Counted) -> None:
    stage.answered(wants(("add", {"a": 1, "b": 2})))
    assert counted(metrics.TURN_RUN) == counted(metrics.TOOL_CALLS) == {}


def test_calls_count_by_tool_and_end_and_those_that_were_never_made_under_no_name_of_the_model_s(
    stage: Stage, counted: Counted
) -> None:
    asked = (
        ("add", {"a": 1, "b": 2}),
        ("fail", {}),
        ("no such tool of mine", {}),
    )
    stage.model.scenes = [wants(*asked), says("Done.")]
    worker = stage.worker("w1")
    turn = stage.submit()
    stage.serve(turn, worker)
    stage.answer_calls(turn, worker)
    stage.serve(turn, worker)
    found = counted(metrics.TOOL_CALLS)
    assert found.pop(("add", "completed")) == found.pop(("fail", "failed")) == 1
    assert [tool for tool, _ in found] == [NOT_RUN]
    assert counted(metrics.TOOL_DURATION) == {("add",): 1, ("fail",): 1}


def test_scores_and_verdicts_count_by_judge(stage: Stage, counted: Counted) -> None:
    members = (
        PanelMember("polite", "contains", {"none": ["damn"]}),
        PanelMember("numbers", "regex", {"pattern": "[0-9]"}),
    )
    stage.agent = replace(stage.agent, judges=Panel(members, max_answers=1))
    stage.model.scenes = [says("There are many.")]
    worker = stage.worker("w1")
    turn = stage.serve(stage.submit(), worker)
    stage.give_verdicts(turn, worker)
    stage.serve(turn, worker)
    scored = counted(metrics.JUDGE_VERDICTS)
    assert scored == {("polite", "scored"): 1, ("numbers", "scored"): 1}
    assert {judge: cell[0] for (judge,), cell in cells_of(metrics.JUDGE_SCORES).items()} == {"polite": 1, "numbers": 0}


def test_patterns_count_by_how_they_came(stage: Stage, counted: Counted) -> None:
    stage.answered(says("Done."))
    assert counted(metrics.PATTERN_HITS) == {("sql/top_n", "matched"): 1}
    assert counted(metrics.PATTERN_LOOKUPS) == {("hit",): 1}


def test_a_commit_is_timed_by_how_far_it_goes(stage: Stage, counted: Counted) -> None:
    stage.submit()
    assert sum(counted(metrics.COMMITS).values()) == counted(metrics.WRITE_WAITS)[()] >= 1
