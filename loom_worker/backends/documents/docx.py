"""The paragraphs of a Word document (.docx), by the standard library: a zip with a few XML files that matter.

Nothing is unpacked to disk. Only the text and the notes, comments, headers and footers beside it are read, but an
archive that names files outside of itself is refused, as no program that writes documents makes one.
"""

import posixpath
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
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
"""Where it is if the relationships do not say."""
_MARGINS = ("Header", "Footer")
_BESIDE = ("Footnotes", "Endnotes", "Comments", *_MARGINS)
"""Files beside the text, in this order; what they hold stands under these headings."""
_OURS = tuple("/2006/main /2006/math /markup-compatibility/2006 /wordprocessingml/main /officeDocument/math".split())
"""Ends of the namespaces of text, formulas and alternatives, those of strict Open XML last."""


def read(file: BinaryIO, _kind: str, _from_page: int) -> Extract:
    """A line for each paragraph."""
    try:
        archive = ZipFile(file)
    except (BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UnreadableDocument("it is not a Word document: no zip archive") from error
    extract = Extract(iter(()))
    extract.lines = _lines(archive, _checked(archive), extract)
    return extract


def _checked(archive: ZipFile) -> list[tuple[str, ZipInfo]]:
    """What is read, each part with its heading; the text comes first, and has none."""
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise UnreadableDocument(f"its archive has {len(entries)} entries; at most {MAX_ENTRIES} are taken")
    if any(_leads_out(entry.filename) for entry in entries):
        raise UnreadableDocument("its archive names files outside of itself")
    main = next((name for kind, name in _related(archive, "") if kind == "officedocument"), _TEXT)
    names = [entry.filename.lower() for entry in entries]
    texts = [entry for entry, name in zip(entries, names, strict=True) if name == main]
    if len(texts) != 1:
        raise UnreadableDocument("it is not a Word document: its archive has no text, or more than one")
    related, parts = {*_related(archive, main)}, [("", texts[0])]
    for heading in _BESIDE:
        usual = re.compile(re.escape(posixpath.join(posixpath.dirname(main), heading.lower())) + r"\d*\.xml")
        found = {name for name in names if usual.fullmatch(name) or (heading.lower(), name) in related}
        parts += [(heading, entry) for entry, name in zip(entries, names, strict=True) if name in found]
    if any(entry.flag_bits & 1 for _, entry in parts):
        raise UnreadableDocument("it is encrypted")
    unpacked = sum(entry.file_size for _, entry in parts)
    if unpacked > min(MAX_XML_BYTES, MAX_RATIO * sum(max(entry.compress_size, 1000) for _, entry in parts)):
        raise UnreadableDocument(f"its text unpacks to {unpacked} bytes, too much for what is packed")
    return parts


def _related(archive: ZipFile, source: str) -> list[tuple[str, str]]:
    """The kind and the name, in lower case, of each part related to this one; fewer if the list of them is broken."""
    folder, name = posixpath.split(source)
    listed = posixpath.join(folder, "_rels", f"{name}.rels")
    found: list[tuple[str, str]] = []

    def start(_name: str, attributes: dict[str, str]) -> None:
        target = posixpath.join("/", folder, attributes.get("Target", "").replace("\\", "/"))
        found.append((posixpath.basename(attributes.get("Type", "")).lower(), posixpath.normpath(target)[1:].lower()))

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler, parser.StartElementHandler = _refuse, start
    entries = (each for each in archive.infolist() if each.filename.lower() == listed)
    with suppress(*_BROKEN, StopIteration, UnreadableDocument), archive.open(next(entries)) as xml:
        parser.Parse(xml.read(16 * CHUNK_BYTES))
    return found


def _leads_out(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return ".." in parts or parts[0] == "" or ":" in parts[0]


def _lines(archive: ZipFile, parts: list[tuple[str, ZipInfo]], extract: Extract) -> Iterator[Line | None]:
    """The lines of the text and of what is beside it, from each part as far as it is sound; the text must be whole."""
    seen: set[Line] = set()  # the headers of a document's sections are mostly the same
    try:
        for heading, entry in parts:
            with suppress(*((*_BROKEN, UnreadableDocument) if heading else ())):
                yield from _of_part(heading, _chunks(archive, entry), extract, seen)
    except _BROKEN as error:
        raise UnreadableDocument(f"it is broken ({type(error).__name__})") from error


def _of_part(heading: str, chunks: Iterator[bytes], extract: Extract, seen: set[Line]) -> Iterator[Line | None]:
    paragraphs = _Paragraphs(heading)
    for chunk in chunks:
        paragraphs.feed(chunk)
        extract.title = extract.title or paragraphs.title
        lines = paragraphs.taken()
        yield from (line for line in lines if heading not in _MARGINS or line not in seen)
        yield None
        seen.update(lines)


def _chunks(archive: ZipFile, entry: ZipInfo) -> Iterator[bytes]:
    """The unpacked text, then an empty chunk; never more than the archive's directory says, as zipfile stops there."""
    with archive.open(entry) as xml:
        yield from chain(iter(lambda: xml.read(CHUNK_BYTES), b""), [b""])


class _Paragraphs:
    """Text between <w:p> and </w:p>, those of a text box before the paragraph around it.

    Text that was deleted or moved away is left out, and so is the second form of what stands there in two. A document
    type declaration, which could hold entities, is refused.
    """

    def __init__(self, heading: str) -> None:
        self.title = ""
        self._lines: list[Line] = []
        self._outline = Outline()
        self._path = heading
        self._text: list[str] = []
        self._level: int | None = None
        self._around: list[tuple[list[str], int | None]] = []  # the same of the paragraphs that hold this one
        self._is_text = False
        self._chars = 0
        self._forms: list[int] = []  # the characters before each alternative that is open
        self._left_out = 0  # how deep within an element that is left out
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.StartDoctypeDeclHandler = _refuse
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._data

    def feed(self, chunk: bytes) -> None:
        self._parser.Parse(chunk, not chunk)

    def taken(self) -> list[Line]:
        lines, self._lines = self._lines, []
        return lines

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local = _local(name)
        is_done = local in ("Choice", "Fallback") and self._forms != [] and self._chars > self._forms[-1]
        if self._left_out or is_done or local in ("del", "moveFrom"):
            self._left_out += 1
            return
        match local:
            case "t":
                self._is_text = True
            case "tab" | "ptab":
                self._text.append("\t")
            case "br" | "cr":
                self._text.append(" ")
            case "noBreakHyphen":
                self._text.append("-")
            case "p":
                self._around.append((self._text, self._level))
                self._text, self._level = [], None
            case "pStyle":
                self._level = _level(attributes.get(f"{name.removesuffix('pStyle')}val", ""))
            case "AlternateContent":
                self._forms.append(self._chars)

    def _data(self, text: str) -> None:
        if self._is_text and not self._left_out:
            self._text.append(text)
            self._chars += len(text)

    def _end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
            return
        match _local(name):
            case "t":
                self._is_text = False
            case "p":
                self._paragraph(" ".join("".join(self._text).split(" ")).strip())
                self._text, self._level = self._around.pop()
            case "AlternateContent":
                self._forms.pop()

    def _paragraph(self, text: str) -> None:
        if self._level is not None and text:
            self._path = self._outline.enter(self._level, text)
            self.title = self.title or text[:MAX_TITLE_CHARS]
        self._lines.append(Line(text, self._path))


def _local(name: str) -> str:
    namespace, _, local = name.rpartition(" ")
    return local if namespace.endswith(_OURS) else ""


def _level(style: str) -> int | None:
    plain = style.lower().replace(" ", "")
    if plain == "title":
        return 0
    digit = plain.removeprefix("heading")
    return int(digit) if plain != digit and digit in {*"123456789"} else None


def _refuse(*_declaration: object) -> None:
    raise UnreadableDocument("its text has a document type declaration, as no Word document has")
