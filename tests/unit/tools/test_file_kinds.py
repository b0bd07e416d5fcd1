import io

import pytest

from loom_worker.core.errors import Invalid
from loom_worker.tools.file_kinds import Kind, kind_of
from tests.support.files_made import gif, jpeg, pdf, png, webp

KINDS = [
    (png(1_024, 768), Kind("image/png", 1_024, 768)),
    (jpeg(4_032, 3_024), Kind("image/jpeg", 4_032, 3_024)),
    (gif(), Kind("image/gif", 30, 20)),
    *((webp(form), Kind("image/webp", 300, 200)) for form in (b"VP8X", b"VP8L", b"VP8 ")),
    (pdf(3), Kind("application/pdf", pages=3)),
    (b"\n%junk\n" + pdf(1), Kind("application/pdf", pages=1)),
    ("größe;preis\n".encode(), Kind("text/plain")),
    (b"\xef\xbb\xbfwith a mark", Kind("text/plain")),
]
REFUSED = [
    (b"", "unsupported-media-type"),
    (b"PK\x03\x04\xff\xfe zip", "unsupported-media-type"),
    (b"text with a \0", "unsupported-media-type"),
    ("größe".encode("latin-1"), "unsupported-media-type"),
    (b"RIFF\0\0\0\0WAVEfmt \xff", "unsupported-media-type"),
    (b"BM\xff\xff\xff\xff bitmap", "unsupported-media-type"),
    (b"\x89PNG\r\n\x1a\n" + bytes([255] * 30), "unreadable-file"),
    (png(0, 7), "unreadable-file"),
    (png(200_000, 2), "unreadable-file"),
    (png(2, 2**32 - 1), "unreadable-file"),
    (b"\xff\xd8\xff", "unreadable-file"),
    (b"\xff\xd8\xff\xe0" + b"\0\0" * 5_000, "unreadable-file"),
    (b"GIF89a", "unreadable-file"),
    (webp(b"VP8X")[:20], "unreadable-file"),
    (b"%PDF-1.7 and then nothing", "unreadable-file"),
    (pdf(password="secret"), "unreadable-file"),
    (pdf(0), "unreadable-file"),
    (pdf(2)[:200], "unreadable-file"),
]


@pytest.mark.cases("data, kind", KINDS)
def test_a_file_is_what_its_bytes_say_whatever_its_name_is(data: bytes, kind: Kind) -> None:
    assert kind_of(io.BytesIO(data), "report.exe") == kind


@pytest.mark.cases("data, slug", REFUSED)
def test_what_no_model_is_shown_is_refused(data: bytes, slug: str) -> None:
    with pytest.raises(Invalid) as refused:
        kind_of(io.BytesIO(data), "photo.png", "image/png")
    assert refused.value.slug == slug


@pytest.mark.cases(
    "name, declared, content_type",
    [
        ("notes.md", None, "text/markdown"),
        ("notes.md", "text/csv", "text/csv"),
        ("data.json", None, "application/json"),
        ("data.json", "image/png", "application/json"),
        ("a.png", "application/pdf", "text/plain"),
        ("a", "text/html; charset=x", "text/plain"),
        ("a", "text/" + "x" * 100, "text/plain"),
    ],
)
def test_name_and_declared_type_tell_one_text_from_another_and_no_more(
    name: str, declared: str | None, content_type: str
) -> None:
    assert kind_of(io.BytesIO(b"a,b\n"), name, declared) == Kind(content_type)
