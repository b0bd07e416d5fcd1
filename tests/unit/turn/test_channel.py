"""Answers as a channel can show them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.channels import LEAST_CHARS, Channel
from loom_worker.turn.channel import hint, parts_of, split

SMS = Channel("sms", "plain", 160)
FENCES = re.compile(r"^ {0,3}```", re.MULTILINE)

words = st.text("ab é\u0301\n`#*-👩\u200d🚀", max_size=600)
"""What is hard to cut: accents, signs of several characters, and fences."""


@given(words, st.integers(LEAST_CHARS, 200), st.booleans())
def test_no_message_is_longer_than_the_channel_takes_and_nothing_is_lost(
    text: str, most_chars: int, is_markdown: bool
) -> None:
    parts = split(text, most_chars, is_markdown=is_markdown)
    assert all(len(part) <= most_chars and part.strip() for part in parts)
    if not is_markdown:
        assert "".join("".join(parts).split()) == "".join(text.split())


@given(st.lists(st.text("abc d\n", min_size=1, max_size=200), min_size=1, max_size=6), st.integers(60, 300))
def test_code_that_is_cut_is_closed_and_opened_again(texts: list[str], most_chars: int) -> None:
    blocks = [f"```python\n{text}\n```" if n % 2 else text for n, text in enumerate(texts)]
    parts = split("\n\n".join(blocks), most_chars, is_markdown=True)
    assert all(len(FENCES.findall(part)) % 2 == 0 for part in parts)
    shown = "".join(re.sub(r"```(python)?", "", part) for part in parts)
    assert "".join(shown.split()) == "".join("".join(texts).split())


@pytest.mark.cases(
    ("text", "parts"),
    [
        ("short", ("short",)),
        ("a" * 30 + "\n\n" + "b" * 30, ("a" * 30, "b" * 30)),
        ("a" * 30 + "\n" + "b" * 30, ("a" * 30, "b" * 30)),
        ("a" * 30 + " " + "b" * 30, ("a" * 30, "b" * 30)),
        ("a" * 50, ("a" * 40, "a" * 10)),
        ("a" * 39 + "e\u0301" + "b" * 20, ("a" * 39, "e\u0301" + "b" * 20)),
        ("x\n\n" + "a" * 38 + " b", ("x\n\n" + "a" * 37, "a b")),
        ("  \n\n ", ()),
    ],
)
def test_a_text_is_cut_where_it_hurts_least(text: str, parts: tuple[str, ...]) -> None:
    assert split(text, 40) == parts


def test_a_fence_that_would_fill_each_message_is_not_opened_again() -> None:
    text = f"```{'x' * 30}\n{'a ' * 60}\n```"
    assert all(len(part) <= 40 for part in split(text, 40, is_markdown=True))


def test_markdown_stays_as_it_is_where_the_channel_shows_it() -> None:
    assert parts_of("**Yes.**\n", Channel("web")) == ("**Yes.**",)


def test_a_channel_of_plain_text_gets_no_marks() -> None:
    assert parts_of("**Yes**, see [here](https://a.example).", SMS) == ("Yes, see here (https://a.example).",)


def test_an_answer_without_visible_text_is_no_message() -> None:
    assert parts_of("\n \n", SMS) == parts_of("", Channel("web")) == ()


def test_the_model_is_told_what_the_channel_shows() -> None:
    assert "plain text" in hint(SMS)
    assert "160 characters" in hint(SMS)
    assert "'web', which shows Markdown" in hint(Channel("web"))
