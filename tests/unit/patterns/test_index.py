import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.patterns.index import Postings, Rarity, _order, count, joined


def test_a_gain_weighs_like_another_rarity() -> None:
    numbers: dict[str, int] = {}
    rows = count([{"a": 1, "b": 1}], numbers)
    rarity = Rarity(rows, numbers, {"a": 1.0, "b": 0.5}.__getitem__)
    assert rarity.weights.tolist() == [1.0, 0.5, 0.0]
    assert Postings(rows, rarity.weights).cosines(rarity.vector(["b"])).tolist() == pytest.approx([0.5 / 1.25**0.5])


def test_a_term_without_gain_counts_for_nothing_and_against_nothing() -> None:
    numbers: dict[str, int] = {}
    rows = count([{"a": 1, "b": 1}], numbers)
    rarity = Rarity(rows, numbers, {"a": 1.0, "b": 0.0, "c": 0.0}.__getitem__)
    asked = rarity.vector(["a", "b", "c"])
    assert (asked.terms, asked.known) == (("a",), 1.0)


def test_unknown_terms_take_from_what_is_known() -> None:
    numbers: dict[str, int] = {}
    rarity = Rarity(count([{"a": 1}, {"b": 1}], numbers), numbers)
    rare = rarity.weights[0]
    unknown = np.log(3) + 1
    assert rarity.vector(["a"]).known == 1.0
    assert rarity.vector(["a", "x"]).known == pytest.approx(rare / np.hypot(rare, unknown))
    assert rarity.vector(["a", "x"], unknown=0.0).known == 1.0
    assert rarity.vector(["a", "x y"], unknown_pair=0.25).known == pytest.approx(rare / np.hypot(rare, unknown / 2))
    assert rarity.vector(["x"]).known == 0.0


def test_a_term_that_no_row_says_any_more_is_unknown() -> None:
    numbers = {"gone": 0}
    rarity = Rarity(count([{"a": 1}], numbers), numbers)
    assert rarity.vector(["gone"]).terms == ()
    assert rarity.share_in_use() == 0.5


def test_the_parts_of_a_cosine_add_up_to_it() -> None:
    numbers: dict[str, int] = {}
    rows = count([{"a": 2, "b": 1}, {"b": 3, "c": 1}], numbers)
    rarity = Rarity(rows, numbers)
    postings, asked = Postings(rows, rarity.weights), rarity.vector(["c", "b", "a", "a"])
    cosines = postings.cosines(asked)
    for row in (0, 1):
        parts = dict(zip(asked.terms, postings.parts(asked, row).tolist(), strict=True))
        assert sum(parts.values()) == pytest.approx(cosines[row])
        assert parts["ac"[1 - row]] == 0.0


def test_rows_without_terms_are_like_nothing() -> None:
    numbers: dict[str, int] = {}
    rows = joined([count([{}], numbers), count([{"a": 1.0}, {}], numbers)])
    rarity = Rarity(rows, numbers)
    assert Postings(rows, rarity.weights).cosines(rarity.vector(["a"])).tolist() == [0.0, 1.0, 0.0]
    assert Postings(rows, rarity.weights).cosines(rarity.vector([])).tolist() == [0.0, 0.0, 0.0]


@given(st.lists(st.integers(0, 2**32 - 1), max_size=50))
def test_numbers_are_ordered_as_they_came_where_they_are_equal(numbers: list[int]) -> None:
    assert _order(np.array(numbers, dtype=np.int64)).tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)
