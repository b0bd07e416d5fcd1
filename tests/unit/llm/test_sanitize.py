"""Text and JSON of a model's own making: what is refused, and what becomes of it where it is already stored."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.text import storable
from loom_worker.llm.sanitize import MOST_DEPTH, checked, json_error, sendable


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_good_text_stays_as_it_is(text):
    assert storable(text) == text


@given(st.text(st.characters()) | st.text("\ud83d\ude00\0a"))
def test_any_text_becomes_utf_8_without_nul(text):
    assert b"\0" not in storable(text).encode()


def test_a_split_pair_is_joined():
    assert storable("\ud83d\ude00") == "😀"


def test_what_was_lost_shows():
    assert storable("a\0b\ud800c") == "a�b�c"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters() | st.just("\ud800"), max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def nested(depth):
    """So many lists within each other."""
    value: list = []
    for _ in range(depth - 1):
        value = [value]
    return value


@given(st.dictionaries(st.text(max_size=3), anything, max_size=3))
def test_whatever_was_stored_can_be_sent_and_what_could_be_is_the_same(arguments):
    sent = sendable(arguments)
    assert json_error(sent) is None
    assert (sent is arguments) == (json_error(arguments) is None)


def test_what_no_json_holds_becomes_null_where_it_stands():
    stored = {"n": math.inf, "m": [1.5, -math.inf, {"k": math.nan}], "s": "a\ud800", "ok": True}
    assert sendable(stored) == {"n": None, "m": [1.5, None, {"k": None}], "s": "a\ufffd", "ok": True}


@pytest.mark.parametrize("depth", [MOST_DEPTH + 1, 400, 5_000])
def test_what_is_too_deep_is_a_flaw_and_is_cut_where_it_is_stored(depth):
    deep = {"q": nested(depth - 1)}
    assert json_error(deep)
    assert checked(deep)[0] == {}
    text = json.dumps(sendable(deep))
    assert text.count("[") == MOST_DEPTH - 1
    assert "null" in text


def test_the_deepest_that_may_be_is_no_flaw():
    deep = {"q": nested(MOST_DEPTH - 1)}
    assert json_error(deep) is None
    assert sendable(deep) is deep
