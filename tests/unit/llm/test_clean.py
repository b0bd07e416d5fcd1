"""Text that every store can carry."""

from hypothesis import given
from hypothesis import strategies as st

from loom_worker.llm.clean import clean


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_good_text_stays_as_it_is(text):
    assert clean(text) == text


@given(st.text(st.characters()) | st.text("\ud83d\ude00\0a"))
def test_any_text_becomes_utf_8_without_nul(text):
    assert b"\0" not in clean(text).encode()


def test_a_split_pair_is_joined():
    assert clean("\ud83d\ude00") == "😀"


def test_what_was_lost_shows():
    assert clean("a\0b\ud800c") == "a�b�c"
