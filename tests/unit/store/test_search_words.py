"""What a question asks the index for."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.words import forms_of
from loom_worker.store.engines.sqlite_search import match
from loom_worker.store.search_words import MOST_IN_A_ROW, MOST_TERMS, Term, terms


def asked(question: str) -> list[str]:
    """The first form of each term, without the other spellings."""
    return [term.forms[0] for term in terms(question)]


@pytest.mark.cases(
    ("question", "wanted"),
    [
        ("Where are the red shoes?", ["red", "shoes"]),
        ("What's Maria's plan?", ["maria", "plan"]),
        ("don’t you like it", ["like"]),
        ("a road-trip", ["road trip", "road", "trip"]),
        ("me@example.com", ["me example com", "example", "com"]),
        ("ERR_12/b", ["err 12 b", "err", "12"]),
        ("Patrick O'Brien's", ["patrick", "o brien", "brien"]),
        ('"quoted" (words) NOT this* OR that', ["quoted", "words", "not", "or"]),
        ("red red RED", ["red"]),
        ("Did Will see the US?", ["will", "saw", "us"]),
        ("DID WILL SEE THE US?", ["saw"]),
        ("Will you see us?", ["saw"]),
        ("naïve cafe\u0301", ["naïve", "café"]),
        ("我们去北京", ["我们", "们去", "去北", "北京"]),
        ("iPhone手机", ["iphone", "手机"]),
        ("猫", ["猫"]),
    ],
)
def test_words_of_matter_are_asked_for_and_those_of_grammar_are_not(question: str, wanted: list[str]) -> None:
    assert asked(question) == wanted


@pytest.mark.cases("question", ["", "  \n", "?!…", "🎉🎉", "--- *** ((", "\x00", "\u200d"])
def test_a_question_without_a_word_asks_for_nothing(question: str) -> None:
    assert terms(question) == ()


def test_words_of_grammar_are_asked_for_when_there_is_nothing_else() -> None:
    assert asked("who are you?") == ["who", "are", "you"]


def test_all_forms_of_an_irregular_word_are_one_term() -> None:
    assert set(terms("going")[0].forms) == {"go", "going", "gone", "went"}
    assert set(terms("bought")[0].forms) == {"bought", "buy"}
    assert forms_of("children") == {"child", "children"}
    assert forms_of("table") == {"table"}


def test_a_question_is_cut_at_the_most_terms_and_a_lump_of_many_words_is_no_name() -> None:
    assert len(terms(" ".join(f"word{n}" for n in range(100)))) == MOST_TERMS
    lump = "-".join(f"part{n}" for n in range(MOST_IN_A_ROW + 1))
    assert all(" " not in term.forms[0] for term in terms(lump))


INDEX = "CREATE VIRTUAL TABLE found USING fts5(lane, said, tokenize = 'porter unicode61 remove_diacritics 2')"


@given(st.text(max_size=60))
def test_whatever_is_asked_is_an_expression_that_fts5_takes(question: str) -> None:
    index = sqlite3.connect(":memory:")
    index.execute(INDEX)
    for term in terms(question):
        assert index.execute("SELECT 1 FROM found WHERE found MATCH ?", (f"said : ({match(term)})",)).fetchall() == []
    index.close()


def test_a_prefix_is_no_operator_of_the_question() -> None:
    assert match(Term(("猫",), is_prefix=True)) == '"猫" *'
    assert match(Term(("a", "b"))) == '"a" OR "b"'
