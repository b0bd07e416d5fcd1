from math import e, exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.patterns.match import FITTED, Calibration, confidences

SCORES = st.lists(st.floats(0, 1), max_size=12)
BY = Calibration(steepness=1.0, none=0.0)


@pytest.mark.cases(
    ("scores", "chances"),
    [
        ([], []),
        ([0.0], [0.0]),
        ([1.0], [(e - 1) / (e - 1 + 1)]),
        ([1.0, 1.0], [(e - 1) / (2 * (e - 1) + 1)] * 2),
        ([1.0, 0.5], [(e - 1) / (e + exp(0.5) - 2 + 1), (exp(0.5) - 1) / (e + exp(0.5) - 2 + 1)]),
    ],
)
def test_a_chance_is_a_share_of_all_pulls(scores: list[float], chances: list[float]) -> None:
    assert confidences(scores, by=BY) == pytest.approx(chances)


@given(SCORES)
def test_chances_are_ordered_as_the_scores_and_never_exceed_1_together(scores: list[float]) -> None:
    chances = confidences(scores)
    assert all(0 <= chance <= 1 for chance in chances)
    assert sum(chances) <= 1 + 1e-12
    by_score = [chance for _, chance in sorted(zip(scores, chances, strict=True))]
    assert by_score == sorted(chances)


def test_a_rival_takes_confidence_away() -> None:
    assert confidences([0.3, 0.28])[0] < confidences([0.3])[0]


def test_a_weak_likeness_is_no_match_and_a_strong_one_is() -> None:
    assert confidences([0.05])[0] < 0.1
    assert confidences([0.6], -0.5)[0] > 0.9  # as right questions are: unlike everyday ones


def test_a_stronger_none_takes_from_all() -> None:
    stronger = Calibration(FITTED.steepness, FITTED.none + 1)
    pairs = zip(confidences([0.2, 0.1], by=stronger), confidences([0.2, 0.1]), strict=True)
    assert all(one < other for one, other in pairs)


def test_a_question_like_everyday_ones_is_matched_less_surely() -> None:
    assert confidences([0.5], 1.0)[0] < confidences([0.5])[0] < confidences([0.5], -1.0)[0]
