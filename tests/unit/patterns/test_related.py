import pytest

from loom_worker.patterns.related import meanings
from loom_worker.patterns.words import FUNCTION_WORDS, stemmed


@pytest.mark.cases(
    ("one", "other"),
    [("shoppers", "customer"), ("turnover", "revenue"), ("postgres", "postgresql"), ("monthly", "months")],
)
def test_words_of_one_meaning_share_a_term(one: str, other: str) -> None:
    assert set(meanings(stemmed(one))) & set(meanings(stemmed(other)))


def test_a_word_of_several_meanings_has_a_term_for_each() -> None:
    assert len(meanings("purchase")) == 2


@pytest.mark.cases("word", ["wombat", "", "the", "="])
def test_other_words_have_no_meaning(word: str) -> None:
    assert meanings(word) == ()


def test_a_meaning_is_never_taken_for_a_word_or_a_pair_of_words() -> None:
    terms = meanings("customer") + meanings("purchase")
    assert all(term.startswith("=") and " " not in term and term not in FUNCTION_WORDS for term in terms)
