import io
import struct

import pytest

from loom_worker.backends.documents import docx
from loom_worker.backends.documents.extract import Extract, UnreadableDocument
from tests.unit.backends.documents.made import document_xml, zipped
from tests.unit.backends.documents.made import docx as word

P = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"


def read(content: bytes) -> Extract:
    extract = docx.read(io.BytesIO(content), "Word", 1)
    extract.lines = iter([line for line in extract.lines if line])
    return extract


def of(inner: str, *, before: str = "", **entries: str) -> bytes:
    return zipped({"word/document.xml": document_xml(inner, before=before), **entries})


def test_paragraphs_are_lines_under_their_headings() -> None:
    document = read(word("before", ("Heading1", "One"), "a &amp; b", ("heading 2", "Two"), "c", ("Title", "T")))
    assert [(line.text, line.heading) for line in document.lines] == [
        ("before", ""),
        ("One", "One"),
        ("a & b", "One"),
        ("Two", "One > Two"),
        ("c", "One > Two"),
        ("T", "T"),
    ]
    assert document.title == "One"


def test_runs_tabs_and_breaks_are_one_line_and_field_codes_are_none() -> None:
    inner = (
        "<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:instrText>HYPERLINK</w:instrText></w:r></w:p>"
    )
    assert [line.text for line in read(of(inner)).lines] == ["a\tb c"]


@pytest.mark.cases(
    "name", ["../x", "a/../../x", "/etc/passwd", "..\\x", "\\\\host\\share", "C:\\x", "C:/x", "a/..", "//x"]
)
def test_an_archive_that_names_files_outside_of_itself_is_refused(name: str) -> None:
    with pytest.raises(UnreadableDocument, match="outside of itself"):
        read(of(P.format("a"), **{name: "x"}))


def _lying(content: bytes) -> bytes:
    """The same, its directory saying that the text unpacks to ten bytes."""
    at = content.index(b"PK\x01\x02")
    return content[: at + 24] + struct.pack("<I", 10) + content[at + 28 :]


@pytest.mark.cases(
    ("content", "reason"),
    [
        (b"", "no zip archive"),
        (b"PK\x03\x04 and no more", "no zip archive"),
        (zipped({"other.xml": "x"}), "no text, or more"),
        (zipped({"word/document.xml": "<a>"}), "broken"),
        (zipped({"word/document.xml": "<?xml version='1.0' encoding='no-such'?><a/>"}), "broken"),
        (of(P.format("A" * 5_000_000)), "unpacks to"),
        (_lying(of(P.format("A" * 100))), "broken"),
        (of(P.format("a"), **{f"e{at}": "" for at in range(docx.MAX_ENTRIES)}), "entries"),
        (of(P.format("&l;"), before='<!DOCTYPE a [<!ENTITY l "lol">]>'), "document type"),
        (of(P.format("&x;"), before='<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>'), "document type"),
        (of(P.format("a"), before='<!DOCTYPE a SYSTEM "http://x.example/a.dtd">'), "document type"),
    ],
)
def test_what_is_broken_or_a_bomb_ends_with_a_reason(content: bytes, reason: str) -> None:
    with pytest.raises(UnreadableDocument, match=reason):
        read(content)


def test_an_archive_with_two_texts_is_refused() -> None:
    twice = zipped({"word/document.xml": "<a/>", "word/documenT.xml": "<b/>"}).replace(b"documenT", b"document")
    with pytest.raises(UnreadableDocument, match="more than one"):
        read(twice)


def test_an_archive_within_stays_closed() -> None:
    inner = zipped({"word/document.xml": document_xml(P.format("secret"))})
    document = read(zipped({"word/document.xml": document_xml(P.format("a")), "word/embeddings/b.docx": inner}))
    assert [line.text for line in document.lines] == ["a"]
