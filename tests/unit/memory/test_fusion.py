"""Rankings are fused by places alone."""

from hypothesis import given
from hypothesis import strategies as st

from loom_worker.memory.semantic import K, fused

RANKINGS = st.lists(st.lists(st.integers(0, 30), unique=True), max_size=4)


def test_what_stands_in_both_rankings_comes_before_what_leads_one() -> None:
    assert [thing for thing, _ in fused([["a", "b", "c"], ["d", "b", "e"]])] == ["b", "a", "d", "c", "e"]


def test_a_score_is_the_sum_over_the_places() -> None:
    assert dict(fused([["a", "b"], ["b"]])) == {"a": 1 / (K + 1), "b": 1 / (K + 2) + 1 / (K + 1)}


@given(RANKINGS)
def test_every_thing_is_there_once_and_scores_fall(rankings: list[list[int]]) -> None:
    found = fused(rankings)
    assert sorted(thing for thing, _ in found) == sorted({thing for ranking in rankings for thing in ranking})
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


@given(st.lists(st.integers(), unique=True))
def test_one_ranking_alone_stays_as_it_is(ranking: list[int]) -> None:
    assert [thing for thing, _ in fused([ranking, []])] == ranking
