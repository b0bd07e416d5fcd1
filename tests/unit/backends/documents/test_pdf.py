import io
import zlib

import pytest

from loom_worker.backends.documents import pdf
from loom_worker.backends.documents.extract import Extract, UnreadableDocument
from tests.unit.backends.documents import made


def read(content: bytes, from_page: int = 1) -> Extract:
    return pdf.read(io.BytesIO(content), "PDF", from_page)


def shown(content: bytes, from_page: int = 1) -> list[tuple[int | None, str]]:
    return [(line.page, line.text) for line in read(content, from_page).lines if line.text]


THREE = made.pdf("One\nsecond line", "Two", "Gr\xf6\xdfe")


def test_lines_know_their_page() -> None:
    assert shown(THREE) == [(1, "One"), (1, "second line"), (2, "Two"), (3, "Größe")]
    assert (read(THREE).title, read(THREE).pages) == ("A title", 3)


def test_reading_goes_on_at_a_later_page() -> None:
    assert shown(THREE, from_page=3) == [(3, "Größe")]


def test_a_page_that_cannot_be_read_costs_no_other() -> None:
    content = made.pdf_of([zlib.compress(b"BT /F1 12 Tf (a) Tj ET"), zlib.compress(b"0" * (pdf.MAX_STREAM_BYTES + 1))])
    assert shown(content) == [(1, "a"), (2, "[this page cannot be read: LimitReachedError]")]


@pytest.mark.cases(
    ("content", "reason"),
    [
        (b"", "cannot be read as PDF"),
        (b"%PDF-1.4\n", "cannot be read as PDF"),
        (b"plain text", "cannot be read as PDF"),
        (THREE[:200], "cannot be read as PDF"),
        (THREE.replace(b"/Kids [5 0 R 7 0 R 9 0 R]", b"/Kids [2 0 R 2 0 R 2 0 R]"), "cannot be read as PDF"),
        (made.pdf_of([zlib.compress(b"0" * (pdf.MAX_STREAM_BYTES + 1))]), "none of its pages"),
        (made.pdf_of([zlib.compress(b"(a) Tj " * 3_000_000)]), "none of its pages"),
    ],
)
def test_what_is_broken_or_a_bomb_ends_with_a_reason(content: bytes, reason: str) -> None:
    with pytest.raises(UnreadableDocument, match=reason):
        shown(content)


def test_an_encrypted_document_says_so() -> None:
    encrypt = b"/Encrypt << /Filter /Standard /V 1 /R 2 /O (%s) /U (%s) /P -4 >> /ID [(a) (a)]" % (b"o" * 32, b"u" * 32)
    with pytest.raises(UnreadableDocument, match="encrypted"):
        read(THREE.replace(b"/Root 1 0 R", b"/Root 1 0 R " + encrypt))


def test_a_script_or_an_attachment_is_neither_run_nor_read() -> None:
    action = (
        b"/OpenAction << /S /JavaScript /JS (app.alert\\(1\\)) >> /AA << /O << /S /URI /URI (http://x.example) >> >>"
    )
    content = made.pdf_of([zlib.compress(b"BT /F1 12 Tf (plain) Tj ET")], catalog=action)
    assert shown(content) == [(1, "plain")]
