"""Rankings are fused by how far each separates what it holds."""

from hypothesis import given
from hypothesis import strategies as st

from loom_worker.memory.semantic import fused

Ranking = list[tuple[int, float]]


def _rankings(least: float, most: float) -> st.SearchStrategy[Ranking]:
    scored = st.tuples(st.integers(0, 30), st.floats(least, most))
    ranked = st.lists(scored, unique_by=lambda each: each[0], max_size=12)
    return ranked.map(lambda listed: sorted(listed, key=lambda each: -each[1]))


def _order(worded: Ranking, near: Ranking) -> list[int]:
    return [thing for thing, _ in fused(worded, near)]


def test_vectors_that_are_all_about_as_near_leave_the_order_of_the_words() -> None:
    worded = [(1, 9.0), (2, 8.0), (3, 7.0)]
    assert _order(worded, [(4, 0.82), (3, 0.815), (2, 0.81), (5, 0.8)]) == [1, 2, 3, 4, 5]


def test_what_is_far_nearer_than_the_rest_comes_before_words_that_many_hold() -> None:
    worded = [(1, 9.0), (2, 3.0), (3, 2.9)]
    assert _order(worded, [(4, 0.8), (3, 0.3), (5, 0.2)]) == [1, 4, 3, 2, 5]


def test_what_both_rankings_hold_comes_before_its_equal() -> None:
    assert _order([(1, 5.0), (2, 5.0)], [(2, 0.6), (3, 0.2)]) == [2, 1, 3]


@given(_rankings(0.0, 50.0), _rankings(-1.0, 1.0))
def test_every_thing_is_there_once_and_scores_fall(worded: Ranking, near: Ranking) -> None:
    found = fused(worded, near)
    assert sorted(thing for thing, _ in found) == sorted({thing for ranking in (worded, near) for thing, _ in ranking})
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


@given(_rankings(0.001, 50.0))
def test_one_ranking_alone_stays_as_it_is(ranking: Ranking) -> None:
    assert _order(ranking, []) == [thing for thing, _ in ranking]
