from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.judges import (
    CRITICALITIES,
    STRATEGIES,
    Criticality,
    Judgement,
    Panel,
    PanelMember,
    Strategy,
    Verdict,
)
from loom_worker.judge.aggregate import judgement

MEMBERS = (PanelMember("any", "contains"),)
SCORES = st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=1, max_size=9)


def said(score: float | None, *, weight: float = 1.0, criticality: Criticality = "non_critical") -> Verdict:
    status = "dead" if score is None else "scored"
    return Verdict(1, 0, "judge", "llm", weight=weight, criticality=criticality, status=status, score=score)


def of(strategy: Strategy, *verdicts: Verdict, threshold: float = 0.7) -> Judgement:
    return judgement(verdicts, Panel(MEMBERS, strategy, threshold))


@pytest.mark.cases(
    "strategy, scores, score, passed",
    [
        ("mean", (0.7, 0.7, 0.7), 0.7, True),  # in binary fractions their mean is less than 0.7
        ("mean", (0.6, 0.7), 0.65, False),
        ("median", (0.1, 0.8, 0.9), 0.8, True),
        ("median", (0.6, 0.8), 0.7, True),
        ("min", (0.69, 1.0), 0.69, False),
        ("max", (0.1, 0.7), 0.7, True),
        ("vote", (0.7, 0.7, 0.1), 0.6667, True),
        ("vote", (0.9, 0.1), 0.5, False),  # a tie is no majority
        ("vote", (0.7,), 1.0, True),
    ],
)
def test_scores_become_one(strategy: Strategy, scores: Sequence[float], score: float, passed: bool) -> None:
    assert of(strategy, *map(said, scores)) == Judgement(score, passed)


def test_weights_count_for_the_weighted_mean_alone() -> None:
    heavy, light = said(1.0, weight=3.0), said(0.2, weight=1.0)
    assert of("weighted", heavy, light) == Judgement(0.8, True)
    assert of("mean", heavy, light) == Judgement(0.6, False)


@pytest.mark.cases(
    "criticality, expected",
    [
        ("non_critical", Judgement(0.8, True)),
        ("critical", Judgement(0.4, False)),
        ("safety_critical", Judgement(0.4, False, "judge")),
    ],
)
def test_a_dead_judge_means_what_its_criticality_says(criticality: Criticality, expected: Judgement) -> None:
    assert of("mean", said(0.8), said(None, criticality=criticality)) == expected


def test_a_dead_safety_critical_judge_lets_nothing_pass_however_the_others_are_counted() -> None:
    for strategy in STRATEGIES:
        found = of(strategy, said(1.0), said(1.0), said(None, criticality="safety_critical"))
        assert (found.passed, found.withheld_for) == (False, "judge")


@pytest.mark.cases("criticality", CRITICALITIES)
def test_a_judge_that_cannot_tell_has_no_part_in_the_score(criticality: Criticality) -> None:
    silent = replace(said(None, criticality=criticality), status="undecided")
    assert of("min", said(0.8), silent) == Judgement(0.8, True)
    assert of("min", silent) == Judgement(None, None)


def test_a_safety_critical_judge_has_a_veto() -> None:
    assert of("max", said(1.0), said(0.6, criticality="safety_critical")) == Judgement(1.0, False, "judge")
    assert of("max", said(1.0), said(0.7, criticality="safety_critical")) == Judgement(1.0, True)


def test_nothing_is_said_where_only_non_critical_judges_are_dead() -> None:
    assert of("min", said(None), said(None)) == Judgement(None, None)


@given(SCORES, st.sampled_from(STRATEGIES))
def test_the_order_of_judges_changes_nothing(scores: list[float], strategy: Strategy) -> None:
    assert of(strategy, *map(said, scores)) == of(strategy, *map(said, reversed(scores)))


@given(SCORES, st.sampled_from([each for each in STRATEGIES if each != "vote"]))
def test_a_score_lies_between_the_lowest_and_the_highest(scores: list[float], strategy: Strategy) -> None:
    score = of(strategy, *map(said, scores)).score
    assert score is not None
    assert min(scores) - 1e-4 <= score <= max(scores) + 1e-4


@given(SCORES, st.integers(0, 8), st.sampled_from(STRATEGIES))
def test_a_higher_score_never_fails_what_passed(scores: list[float], place: int, strategy: Strategy) -> None:
    higher = [1.0 if n == place else score for n, score in enumerate(scores)]
    assert not (of(strategy, *map(said, scores)).passed and not of(strategy, *map(said, higher)).passed)


@given(SCORES, st.floats(0.0, 1.0))
def test_all_must_pass_means_the_lowest_and_any_may_pass_the_highest(scores: list[float], threshold: float) -> None:
    verdicts = list(map(said, scores))
    assert of("min", *verdicts, threshold=threshold).passed == all(score >= threshold for score in scores)
    assert of("max", *verdicts, threshold=threshold).passed == any(score >= threshold for score in scores)


@given(SCORES)
def test_equal_weights_are_no_weights(scores: list[float]) -> None:
    weighted = [said(score, weight=2.5) for score in scores]
    assert of("weighted", *weighted) == of("mean", *weighted)


@given(SCORES)
def test_a_majority_is_strictly_more_than_half(scores: list[float]) -> None:
    passing = sum(score >= 0.7 for score in scores)
    assert of("vote", *map(said, scores)).passed == (2 * passing > len(scores))
