"""The paragraphs of a Word document (.docx), by the standard library: a zip with one XML file that matters.

Nothing is unpacked to disk. Of the archive's names only ``word/document.xml`` is ever used, but an archive that names
files outside of itself is refused, as no program that writes documents makes one.
"""

import zlib
from collections.abc import Iterator
from typing import BinaryIO
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile, ZipInfo

from loom_worker.backends.documents.extract import MAX_TITLE_CHARS, Extract, Line, Outline, UnreadableDocument

MAX_ENTRIES = 5000
MAX_RATIO = 200
"""Unpacked to packed; XML of real documents is at 5 to 30."""
MAX_XML_BYTES = 50_000_000
CHUNK_BYTES = 64 * 1024

_BROKEN = (
    *(expat.ExpatError, BadZipFile, EOFError, LookupError, NotImplementedError, OSError, RuntimeError, ValueError),
    zlib.error,
)
_TEXT = "word/document.xml"
_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main "


def read(file: BinaryIO, _kind: str, _from_page: int) -> Extract:
    """A line for each paragraph.

    Raises:
        Unreadable: no Word document, encrypted, a bomb, or broken; the lines may raise it too.
    """
    try:
        archive = ZipFile(file)
    except (BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UnreadableDocument("it is not a Word document: no zip archive") from error
    extract = Extract(iter(()))
    extract.lines = _lines(archive, _checked(archive), extract)
    return extract


def _checked(archive: ZipFile) -> ZipInfo:
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise UnreadableDocument(f"its archive has {len(entries)} entries; at most {MAX_ENTRIES} are taken")
    if any(_leads_out(entry.filename) for entry in entries):
        raise UnreadableDocument("its archive names files outside of itself")
    texts = [entry for entry in entries if entry.filename == _TEXT]
    if len(texts) != 1:
        raise UnreadableDocument("it is not a Word document: its archive has no text, or more than one")
    if texts[0].flag_bits & 1:
        raise UnreadableDocument("it is encrypted")
    if texts[0].file_size > min(MAX_XML_BYTES, MAX_RATIO * max(texts[0].compress_size, 1000)):
        raise UnreadableDocument(f"its text unpacks to {texts[0].file_size} bytes, too much for what is packed")
    return texts[0]


def _leads_out(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return ".." in parts or parts[0] == "" or ":" in parts[0]


def _lines(archive: ZipFile, entry: ZipInfo, extract: Extract) -> Iterator[Line | None]:
    paragraphs = _Paragraphs()
    try:
        for chunk in _chunks(archive, entry):
            paragraphs.feed(chunk)
            extract.title = extract.title or paragraphs.title
            yield from paragraphs.taken()
            yield None
        paragraphs.feed(b"", is_end=True)
        yield from paragraphs.taken()
    except _BROKEN as error:
        raise UnreadableDocument(f"it is broken ({type(error).__name__})") from error


def _chunks(archive: ZipFile, entry: ZipInfo) -> Iterator[bytes]:
    """The unpacked text; never more than the archive's directory says, as zipfile stops there."""
    with archive.open(entry) as xml:
        while chunk := xml.read(CHUNK_BYTES):
            yield chunk


class _Paragraphs:
    """Text between <w:p> and </w:p>; a document type declaration, which could hold entities, is refused."""

    def __init__(self) -> None:
        self.title = ""
        self._lines: list[Line] = []
        self._text: list[str] = []
        self._outline = Outline()
        self._path = ""
        self._level: int | None = None
        self._is_text = False
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.StartDoctypeDeclHandler = _refuse
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._data

    def feed(self, chunk: bytes, *, is_end: bool = False) -> None:
        self._parser.Parse(chunk, is_end)

    def taken(self) -> list[Line]:
        lines, self._lines = self._lines, []
        return lines

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        match name.removeprefix(_W):
            case "t":
                self._is_text = True
            case "tab":
                self._text.append("\t")
            case "br" | "cr":
                self._text.append(" ")
            case "pStyle":
                self._level = _level(attributes.get(f"{_W}val", ""))

    def _data(self, text: str) -> None:
        if self._is_text:
            self._text.append(text)

    def _end(self, name: str) -> None:
        match name.removeprefix(_W):
            case "t":
                self._is_text = False
            case "p":
                self._paragraph(" ".join("".join(self._text).split(" ")).strip())
                self._text, self._level = [], None

    def _paragraph(self, text: str) -> None:
        if self._level is not None and text:
            self._path = self._outline.enter(self._level, text)
            self.title = self.title or text[:MAX_TITLE_CHARS]
        self._lines.append(Line(text, self._path))


def _level(style: str) -> int | None:
    """The level of a heading's style: Title, Heading1, heading 2."""
    plain = style.lower().replace(" ", "")
    if plain == "title":
        return 0
    digit = plain.removeprefix("heading")
    return int(digit) if plain != digit and digit in {*"123456789"} else None


def _refuse(*_declaration: object) -> None:
    raise UnreadableDocument("its text has a document type declaration, as no Word document has")
