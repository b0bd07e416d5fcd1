"""The index against scikit-learn, whose TF-IDF is the definition of ours."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from loom_worker.patterns.index import Postings, Rarity, count
from loom_worker.patterns.words import pieces, terms
from tests.support.shipped_patterns import shipped

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
    documents = [cut(f"{pattern.title}. {pattern.description}") for pattern in shipped().patterns]
    for asked in random.Random(3).sample(documents, 10):
        assert ours(documents, asked) == pytest.approx(oracle(documents, asked), abs=1e-9)
