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


def _part(name: str, *texts: str) -> str:
    return document_xml("".join(map(P.format, texts))).replace("w:document", f"w:{name}")


def test_notes_comments_headers_and_footers_follow_the_text_under_their_names() -> None:
    beside = {"header2": "firm draft", "header1": "firm", "footer1": "page", "comments": "remark", "endnotes": "end"}
    beside["footnotes"] = "ibid. ibid."
    parts = {f"word/{name}.xml": _part(name, *texts.split()) for name, texts in beside.items()}
    lines = read(of(P.format("text"), **parts, **{"word/glossary/footnotes.xml": _part("footnotes", "sample")})).lines
    assert [(line.text, line.heading) for line in lines] == [
        ("text", ""),
        *[("ibid.", "Footnotes"), ("ibid.", "Footnotes"), ("end", "Endnotes"), ("remark", "Comments")],
        *[("firm", "Header"), ("draft", "Header"), ("page", "Footer")],
    ]


def _box(text: str) -> str:
    return f"<w:drawing><w:txbxContent>{P.format(text)}</w:txbxContent></w:drawing>" if text else "<w:drawing/>"


def _either(choices: list[str], fallback: str) -> str:
    forms = "".join(f"<mc:Choice>{_box(text)}</mc:Choice>" for text in choices)
    return (
        f'<mc:AlternateContent xmlns:mc="{MC}">{forms}<mc:Fallback>{_box(fallback)}</mc:Fallback></mc:AlternateContent>'
    )


MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"


@pytest.mark.cases(
    ("inner", "lines"),
    [
        (_either(["box", "box"], "box"), ["box", "before after"]),
        (_either([""], "box"), ["box", "before after"]),
        (_either([f"outer</w:t>{_either(['in'], 'in')}<w:t>"], "outer"), ["in", "outer", "before after"]),
        ("<w:del><w:r><w:t>gone</w:t></w:r></w:del><w:ins><w:r><w:t>new </w:t></w:r></w:ins>", ["before new after"]),
        ("<w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom>", ["before after"]),
        ("<w:r><w:t>e</w:t><w:noBreakHyphen/><w:t>mail</w:t><w:ptab/></w:r>", ["before e-mail\tafter"]),
    ],
)
def test_a_text_box_is_read_once_and_deleted_text_never(inner: str, lines: list[str]) -> None:
    paragraph = f"<w:p><w:r><w:t>before </w:t></w:r>{inner}<w:r><w:t>after</w:t></w:r></w:p>"
    assert [line.text for line in read(of(paragraph)).lines] == lines


@pytest.mark.parametrize("target", ["word/document2.xml", "/word/document2.xml", "./word/document2.xml"])
def test_the_text_is_where_the_relationships_say_also_in_strict_open_xml(target: str) -> None:
    strict = "http://purl.oclc.org/ooxml"
    kind = f"{strict}/officeDocument/relationships/officeDocument"
    relationships = (
        f"<Relationships><Relationship Target='x.png' Type='x'/><Relationship Type='{kind}' Target='{target}'/>"
    )
    text = document_xml('<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>strict</w:t></w:r></w:p>')
    text = text.replace(
        "http://schemas.openxmlformats.org/wordprocessingml/2006/main", f"{strict}/wordprocessingml/main"
    )
    document = read(zipped({"_rels/.rels": f"{relationships}</Relationships>", "word/document2.xml": text}))
    assert [tuple(line) for line in document.lines] == [("strict", "strict", None)]


RELATED = "<a><b Type='http://schemas.openxmlformats.org/officeDocument/2006/relationships/{}' Target='{}'/></a>"


@pytest.mark.cases(
    ("main", "listed", "target", "beside"),
    [
        ("doc.xml", "doc.xml", "", "footnotes.xml"),
        ("doc.xml", "/doc.xml", "fn.xml", "fn.xml"),
        ("word/a.xml", "word\\a.xml", "", "word/footnotes.xml"),
        ("Word/Document.xml", "word/document.xml", "", "WORD/FootNotes.xml"),
        *(("word/a.xml", "word/a.xml", *each) for each in [("../n/x.xml", "n/x.xml"), ("n\\X.xml", "word/n/x.xml")]),
    ],
)
def test_notes_are_where_the_relationships_say(main: str, listed: str, target: str, beside: str) -> None:
    folder, _, name = main.rpartition("/")
    related = {"_rels/.rels": RELATED.format("officeDocument", listed).encode("utf-16")}
    related[f"{folder}/_rels/{name}.rels".lstrip("/")] = RELATED.format("footnotes", target).encode()
    texts = {main: document_xml(P.format("text")), beside: _part("footnotes", "note")}
    assert [line.text for line in read(zipped(texts | related)).lines] == ["text", "note"]


ENTITY = document_xml(P.format("&x;"), before="<!DOCTYPE a [<!ENTITY x 'lol'>]>")


@pytest.mark.parametrize("part", ["<w:hdr", "", "<?xml version='1.0' encoding='no-such'?><a/>", ENTITY])
def test_a_broken_part_beside_the_text_is_left_out(part: str) -> None:
    lines = read(of(P.format("text"), **{"word/footnotes.xml": part, "word/header1.xml": _part("hdr", "head")})).lines
    assert [line.text for line in lines] == ["text", "head"]


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
        (of(P.format("a"), **{"word/header1.xml": P.format("A" * 5_000_000)}), "unpacks to"),
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
