import sqlite3

import hypothesis.strategies as st
import pytest
from hypothesis import given

from loom_worker.backends.documents.lookup import MOST_TERMS, expression


@pytest.mark.cases(
    ("question", "expected"),
    [
        ("What is the return policy?", '"return" OR "policy"'),
        ("to be or not to be", '"to" OR "be" OR "or" OR "not"'),
        ("AND OR NOT", '"and" OR "or" OR "not"'),
        ("NEAR(a b) col:x* ^y", '"near a" OR "near" OR "b" OR "col x" OR "col" OR "y"'),
        ("ERR_12", '"err 12" OR "err" OR "12"'),
        ("road-trip road", '"road trip" OR "road" OR "trip"'),
        ('say "hi" -- \'; DROP', '"say" OR "hi" OR "drop"'),
        ("東京都 A4", '"東京 京都" OR "a4"'),
        ("都", '"都" *'),
        ("?!… \0 \ud800", None),
        ("", None),
    ],
)
def test_a_question_becomes_its_words_quoted(question: str, expected: str | None) -> None:
    assert expression(question) == expected


def test_a_long_question_is_asked_for_its_first_words() -> None:
    found = expression(" ".join(f"word{at}" for at in range(500)))
    assert found is not None
    assert found.count(" OR ") == MOST_TERMS - 1


@given(st.text(max_size=60))
def test_no_question_is_an_error_of_the_index(question: str) -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute('CREATE VIRTUAL TABLE found USING fts5 (body, tokenize="porter unicode61")')
        if words := expression(question):
            connection.execute("SELECT * FROM found WHERE found MATCH ?", (words,)).fetchall()
    connection.close()
