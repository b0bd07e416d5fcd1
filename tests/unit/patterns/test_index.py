"""The index against scikit-learn, whose TF-IDF is the definition of ours."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from loom_worker.patterns.index import Postings, Rarity, _order, count, joined
from loom_worker.patterns.library import load, packaged_root
from loom_worker.patterns.words import pieces, terms

DOCUMENTS = st.lists(
    st.lists(st.sampled_from("a b c d e f g".split()), min_size=1, max_size=12), min_size=1, max_size=8
)
WORDS = st.lists(st.sampled_from("a b c d e f g x y".split()), max_size=12)


def ours(documents: list[list[str]], asked: list[str]) -> list[float]:
    numbers: dict[str, int] = {}
    rows = count(map(Counter, documents), numbers)
    rarity = Rarity(rows, numbers)
    return Postings(rows, rarity.weights).cosines(rarity.vector(asked)).tolist()


def oracle(documents: list[list[str]], asked: list[str]) -> list[float]:
    vectorizer = TfidfVectorizer(analyzer=lambda document: document, sublinear_tf=True)
    rows = vectorizer.fit_transform(documents)
    return (rows @ vectorizer.transform([asked]).T).toarray().ravel().tolist()


@settings(max_examples=40)
@given(DOCUMENTS, WORDS)
def test_cosines_are_those_of_scikit_learn(documents: list[list[str]], asked: list[str]) -> None:
    assert ours(documents, asked) == pytest.approx(oracle(documents, asked), abs=1e-9)


@pytest.mark.parametrize("cut", [terms, pieces], ids=["words", "pieces"])
def test_cosines_over_the_shipped_patterns_are_those_of_scikit_learn(cut: type[list[str]]) -> None:
    documents = [cut(f"{pattern.title}. {pattern.description}") for pattern in load(packaged_root()).patterns]
    for asked in random.Random(3).sample(documents, 10):
        assert ours(documents, asked) == pytest.approx(oracle(documents, asked), abs=1e-9)


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
    import numpy as np

    assert _order(np.array(numbers, dtype=np.int64)).tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)
