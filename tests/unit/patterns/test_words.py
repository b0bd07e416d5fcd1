import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.words import stemmed
from loom_worker.patterns.words import FUNCTION_WORDS, meanings, pieces, terms, words


def single(text: str) -> list[str]:
    return [term for term in terms(text) if " " not in term and term not in FUNCTION_WORDS]


def test_endings_do_not_count() -> None:
    assert single("Which of the categories were selling?") == ["category", "sell"]


def test_words_of_grammar_stay_but_make_no_pairs() -> None:
    assert terms("value of the order") == ["value", "of", "the", "order", "value order"]


def test_neighbouring_words_are_terms_too() -> None:
    assert terms("average order value") == ["average", "order", "value", "average order", "order value"]


@pytest.mark.cases(
    "period", ["last year", "this month", "the past 3 months", "in March", "March 2025", "2025", "Q3 2025"]
)
def test_a_period_is_not_what_a_question_is_about(period: str) -> None:
    assert single(f"revenue {period}") == single("revenue")


def test_two_periods_are_a_comparison() -> None:
    assert single("revenue in 2024 and 2025") == ["revenue", "versus"]


def test_a_measure_of_time_stays_a_word() -> None:
    assert single("revenue per month") == ["revenue", "per", "month"]


@pytest.mark.cases("text", ["", "?!", "2025", "😀 🚀", "\ud800", "\x00"])
def test_a_text_that_says_nothing_has_no_terms(text: str) -> None:
    assert (terms(text), pieces(text)) == ([], [])


@pytest.mark.cases(
    ("word", "stem"),
    [
        ("orders", "order"),
        ("ordinary", "ordinary"),
        ("class", "class"),
        ("status", "status"),
        ("analysis", "analysis"),
        ("bus", "bus"),
        ("gas", "gas"),
        ("cats", "cat"),
        ("ties", "tie"),
        ("cities", "city"),
        ("selling", "sell"),
        ("string", "string"),
        ("failed", "fail"),
        ("speed", "speed"),
        ("shipping", "ship"),
        ("dropped", "drop"),
        ("missing", "miss"),
        ("filled", "fill"),
        ("feed", "feed"),
        ("does", "does"),
    ],
)
def test_a_word_loses_plural_and_tense_alone(word: str, stem: str) -> None:
    assert stemmed(word) == stem


@pytest.mark.cases(
    ("text", "cut"),
    [
        ("order", [" ord", "orde", "rder", "der "]),
        ("by", [" by "]),
        ("a b", [" a ", " b "]),
        ("売上", ["売", "上"]),
    ],
)
def test_pieces_are_four_characters_of_one_word_with_its_edges(text: str, cut: list[str]) -> None:
    assert pieces(text) == cut


def test_scripts_without_spaces_give_pairs_of_characters() -> None:
    assert words("売上高はSQLで") == ["売上", "上高", "高は", "sql", "で"]
    assert words("上") == ["上"]


def test_forms_of_the_same_character_are_one() -> None:
    assert words("Ｓａｌｅｓ") == words("SALES") == ["sales"]
    assert words("cafe\u0301") == words("caf\u00e9")


@given(st.text(max_size=60))
def test_any_text_has_words_in_small_letters_without_spaces(text: str) -> None:
    for word in words(text):
        assert word
        assert not any(character.isspace() for character in word)
    assert all(0 < len(piece) <= 4 for piece in pieces(text))


@pytest.mark.parametrize(
    ("one", "other"),
    [("shoppers", "customer"), ("turnover", "revenue"), ("postgres", "postgresql"), ("monthly", "months")],
)
def test_words_of_one_meaning_share_a_term(one: str, other: str) -> None:
    assert set(meanings(stemmed(one))) & set(meanings(stemmed(other)))


def test_a_word_of_several_meanings_has_a_term_for_each() -> None:
    assert len(meanings("purchase")) == 2


@pytest.mark.parametrize("word", ["wombat", "", "the", "="])
def test_other_words_have_no_meaning(word: str) -> None:
    assert meanings(word) == ()


def test_a_meaning_is_never_taken_for_a_word_or_a_pair_of_words() -> None:
    terms = meanings("customer") + meanings("purchase")
    assert all(term.startswith("=") and " " not in term and term not in FUNCTION_WORDS for term in terms)
