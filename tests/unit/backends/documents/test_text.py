import io

import pytest

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
