"""Folders and files of every kind, made in the test: by hand where a library would make only sound ones."""

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from loom_worker.backends.documents.backend import DocumentsBackend
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller

CALLER = Caller("default/s", "s", "default", "turn_1", "call_1")
_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


class Folder:
    """A folder of documents with its backend."""

    def __init__(self, path: Path, *, timeout_s: float = 30.0) -> None:
        self.path = path / "docs"
        self.path.mkdir(exist_ok=True)
        self.index = path / "indexes"
        self.backend = DocumentsBackend(self.path, self.index, timeout_s=timeout_s)
        self._tools = {tool.spec.name: tool for tool in self.backend.tools()}

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def call(self, name: str, **arguments: object) -> Json:
        result = self._tools[f"{name}_documents"].run(arguments, CALLER)
        assert isinstance(result, dict)
        return result

    def read(self, path: str, **arguments: object) -> str:
        """``from_`` stands for the argument ``from``."""
        given = {key.rstrip("_"): value for key, value in arguments.items()}
        result = self._tools["read_document"].run({"path": path, **given}, CALLER)
        assert isinstance(result, str)
        return result

    def found(self, query: str, **arguments: object) -> list[str]:
        return [hit["path"] for hit in self.call("search", query=query, **arguments)["passages"]]

    def flaws(self) -> dict[str, str]:
        listed = self.call("list", limit=100)["documents"]
        return {entry["path"]: entry["unreadable"] for entry in listed if "unreadable" in entry}


def pdf(*pages: str, title: str = "A title") -> bytes:
    """A PDF 1.4 with these texts, a line for each line, in Helvetica."""
    streams = [_shown(text).encode("latin-1") for text in pages]
    return pdf_of([zlib.compress(stream) for stream in streams], title=title)


def pdf_of(streams: list[bytes], *, title: str = "", page: bytes = b"", catalog: bytes = b"") -> bytes:
    """A PDF of packed content streams; ``page`` and ``catalog`` go into every page and the catalog."""
    kids = b" ".join(b"%d 0 R" % (5 + 2 * at) for at in range(len(streams)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R %s >>" % catalog,
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(streams)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<< /Title (%s) >>" % title.encode("latin-1"),
    ]
    for at, stream in enumerate(streams):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R %s"
            b" /Resources << /Font << /F1 3 0 R >> >> >>" % (6 + 2 * at, page)
        )
        objects.append(b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(stream), stream))
    return _numbered(objects)


def docx(*paragraphs: str | tuple[str, str]) -> bytes:
    """A Word document of paragraphs; one with a style is a pair of style and text."""
    inner = "".join(_paragraph(*((each,) if isinstance(each, str) else reversed(each))) for each in paragraphs)
    return zipped({"[Content_Types].xml": "<Types/>", "word/document.xml": document_xml(inner)})


def document_xml(inner: str, *, before: str = "") -> str:
    return f'<?xml version="1.0"?>{before}<w:document {_W}><w:body>{inner}</w:body></w:document>'


def zipped(entries: Mapping[str, str | bytes]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return raw.getvalue()


def _paragraph(text: str, style: str = "") -> str:
    marked = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{marked}<w:r><w:t>{text}</w:t></w:r></w:p>"


def _shown(text: str) -> str:
    lines = " ".join(f"({line}) Tj T*" for line in text.split("\n"))
    return f"BT /F1 12 Tf 14 TL 72 720 Td {lines} ET"


def _numbered(objects: list[bytes]) -> bytes:
    raw = bytearray(b"%PDF-1.4\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(raw))
        raw += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start = len(raw)
    raw += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    raw += b"".join(b"%010d 00000 n \n" % place for place in places)
    raw += b"trailer\n<< /Size %d /Root 1 0 R /Info 4 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(raw)
