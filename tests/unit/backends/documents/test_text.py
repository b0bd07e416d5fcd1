import io

import hypothesis.strategies as st
import pytest
from hypothesis import given

from loom_worker.backends.documents import text
from loom_worker.backends.documents.extract import MAX_CHARS, Extract, UnreadableDocument


def read(content: str | bytes, kind: str = "text") -> Extract:
    return text.read(io.BytesIO(content.encode() if isinstance(content, str) else content), kind, 1)


def headings(content: str, kind: str) -> list[str]:
    return [line.heading for line in read(content, kind).lines]


def test_lines_are_those_an_editor_counts() -> None:
    assert [line.text for line in read("a\r\nb\rc\u2028d\x0ce\n\nf\n").lines] == ["a", "b", "c\u2028d\x0ce", "", "f"]


@pytest.mark.parametrize("data", [b"a\0b", b"abc\0def ", "Größe".encode("utf-16-be")[:-1], bytes(range(200))])
def test_bytes_with_nul_that_are_no_text_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableDocument, match="binary data"):
        text.decode(data)


@pytest.mark.cases("declared", ["no-such", "base64", "rot13", "idna", "unicode_escape", "utf-7", "undefined"])
def test_a_declared_encoding_never_gives_what_cannot_be_stored(declared: str) -> None:
    text.decode(b"+2AA- \\ud800 x", declared=declared)[0].encode()


def test_a_long_text_is_not_decoded_beyond_what_is_kept() -> None:
    assert len(text.decode(b"\xc3\xa4" * (MAX_CHARS + 10))[0]) == MAX_CHARS + 1
    assert len(text.decode(b"a" + "€".encode() * (text.MAX_TEXT_BYTES // 3 + 1))[0]) == MAX_CHARS + 1


def test_markdown_lines_stand_under_their_headings() -> None:
    content = "intro\n# One #\na\n```\n# no heading\n```\n### Deep\nb\nTwo\n===\nc\nSub\n---\n#tag"
    assert headings(content, "Markdown") == [
        "",
        *["One"] * 5,
        *["One > Deep"] * 2,
        *["Two"] * 3,
        *["Two > Sub"] * 3,
    ]
    assert read(content, "Markdown").title == "One"


def test_restructuredtext_gives_each_mark_the_next_level() -> None:
    content = "Top\n***\na\n\nSub\n~~~\nb\n\nSub 2\n~~~~~\n\nTop 2\n*****\n"
    assert (
        list(dict.fromkeys(headings(content, "reStructuredText")))
        == ["", "Top", "Top > Sub", "Top > Sub 2", "Top 2"][1:]
    )


def test_rows_of_a_table_stand_under_the_names_of_its_columns() -> None:
    assert headings("id,name\n1,a\n2,b\n", "CSV") == ["id,name"] * 3


def test_text_and_json_have_neither_headings_nor_a_title() -> None:
    for kind in ("text", "JSON"):
        assert (set(headings("# a\nb\n===\n", kind)), read("# a", kind).title) == ({""}, "")


def read_page(content: str | bytes) -> Extract:
    extract = text.read(io.BytesIO(content.encode() if isinstance(content, str) else content), "HTML", 1)
    extract.lines = iter([line for line in extract.lines if line])
    return extract


def shown(content: str | bytes) -> list[str]:
    return [line.text for line in read_page(content).lines]


@pytest.mark.cases(
    ("content", "expected"),
    [
        ("<p>Hello <b>wor</b>ld\n again<br>next", ["Hello world again", "next"]),
        ("<ul><li>x<li>y</ul>", ["- x", "- y"]),
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", ["a | b", "1 | 2"]),
        ("<pre>a\n  b\n\nc</pre>d", ["a", "  b", "c", "d"]),
        ("a &lt;b&gt; &eacute; &#8364; &nosuch; &#xD800;", ["a <b> é € &nosuch; \ufffd"]),
        ("<script>evil<b>x</b></script>a<style>p{}</style>b<template>t</template>c<svg><text>d</text></svg>", ["abc"]),
        ("<svg/>a<!-- hidden -->b", ["ab"]),
        ("<p>open <i>never closed", ["open never closed"]),
        ("</p></div>stray", ["stray"]),
        ("no markup at all", ["no markup at all"]),
        ("", []),
    ],
)
def test_a_page_becomes_the_lines_a_reader_would_see(content: str, expected: list[str]) -> None:
    assert shown(content) == expected


def test_lines_stand_under_their_headings_and_the_title_is_none_of_them() -> None:
    page = read_page("<title> A &amp;\n B</title><body>x<h1>One</h1>a<h3>Deep</h3>b<h2>Two</h2>c")
    assert [tuple(line)[:2] for line in page.lines] == [
        ("x", ""),
        ("One", "One"),
        ("a", "One"),
        ("Deep", "One > Deep"),
        ("b", "One > Deep"),
        ("Two", "One > Two"),
        ("c", "One > Two"),
    ]
    assert page.title == "A & B"


@pytest.mark.cases(
    ("start", "text", "encoding"),
    [
        ('<meta charset="iso-8859-15">', "€", "iso-8859-15"),
        ("<meta http-equiv=x content='text/html; charset=shift_jis'>", "東京", "shift_jis"),
        ("<meta charset=utf-16>", "é", "utf-8"),
        (f"<!-- {'x' * 9000} --><META CharSet = gb2312 >", "镕", "gb18030"),
        ("<!-- <meta charset=koi8-r> --><meta charset=windows-1251>", "молоко", "cp1251"),
        ("<?xml version='1.0' encoding='X-Mac-Cyrillic'?><meta charset=nonsense>", "Ёлка", "mac-cyrillic"),
    ],
)
def test_the_encoding_a_page_declares_is_used(start: str, text: str, encoding: str) -> None:
    assert "".join(shown((f"{start}<p>{text}").encode(encoding))) == text


def test_a_page_of_binary_data_is_refused() -> None:
    with pytest.raises(UnreadableDocument):
        shown(b"<p>\0\0")


def test_depth_costs_nothing() -> None:
    assert shown("<div>" * 20_000 + "x" + "</div>" * 20_000) == ["x"]


@given(
    st.lists(
        st.sampled_from("<p> </p> <h1> <title> </title> <svg> </svg> <!-- --> <![ <? & &# <a <pre> x \n".split(" "))
    )
)
def test_no_markup_raises(pieces: list[str]) -> None:
    for line in read_page("".join(pieces)).lines:
        assert "\n" not in line.text
