"""Markdown as plain text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.turn.plain_text import plain


@pytest.mark.cases(
    ("markdown", "text"),
    [
        ("# Title\n\nSome *text*, **bold**, ~~gone~~ and `code`.", "Title\n\nSome text, bold, gone and code."),
        ("[a link](https://x.example)", "a link (https://x.example)"),
        ("<https://x.example> and <me@x.example>", "https://x.example and me@x.example"),
        ("![a map](https://x.example/map.png)", "a map (https://x.example/map.png)"),
        ("[**bold** link](https://x.example)", "bold link (https://x.example)"),
        ("- one\n- two\n  - inner\n- three\n\nend", "- one\n- two\n  - inner\n- three\n\nend"),
        ("3. three\n4. four", "3. three\n4. four"),
        ("1. first\n\n   more\n2. second", "1. first\n\n   more\n\n2. second"),
        ("> quoted *text*\n> more\n\nend", "> quoted text\n> more\n\nend"),
        ("> > deep\n\nend", "> > deep\n\nend"),
        ("```sh\nls  *.md\n```\nend", "ls  *.md\n\nend"),
        ("    indented\n\nend", "indented\n\nend"),
        ("| a | b |\n|---|---|\n| 1 | *2* |\n\nend", "a | b\n1 | 2\n\nend"),
        ("one\n\n---\n\ntwo", "one\n\n———\n\ntwo"),
        ("2 \\* 3 &amp; 4", "2 * 3 & 4"),
        ("<b>as it is</b>", "<b>as it is</b>"),
        ("a line  \nand another\nand a third", "a line\nand another\nand a third"),
        ("-\n- two", "- two"),
        ("", ""),
    ],
)
def test_marks_are_left_out(markdown: str, text: str) -> None:
    assert plain(markdown) == text


@given(st.text("ab \n#*-_>`[]()!|1.~<&", max_size=300))
def test_whatever_a_model_writes_becomes_text(markdown: str) -> None:
    text = plain(markdown)
    assert text == text.strip("\n")
    assert set("ab") & set(markdown) == set("ab") & set(text) or "[" in markdown or "`" in markdown or "<" in markdown


@given(st.lists(st.text("abc", min_size=1), min_size=1))
def test_words_stay_as_they_are(words: list[str]) -> None:
    assert plain(" ".join(words)) == " ".join(words)
