"""Which files are documents, by their suffix, and who reads them. A file's first bytes overrule its suffix."""

from collections.abc import Callable
from importlib import import_module
from pathlib import PurePosixPath
from typing import BinaryIO

from loom_worker.backends.documents.extract import Extract, UnreadableDocument

KINDS = {
    "": "text",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
    ".md": "Markdown",
    ".markdown": "Markdown",
    ".rst": "reStructuredText",
    ".html": "HTML",
    ".htm": "HTML",
    ".xhtml": "HTML",
    ".csv": "CSV",
    ".tsv": "CSV",
    ".json": "JSON",
    ".jsonl": "JSON",
    ".ndjson": "JSON",
    ".pdf": "PDF",
    ".docx": "Word",
}

ARCHIVES = frozenset(".zip .tar .gz .tgz .bz2 .tbz2 .xz .txz .zst .7z .rar .jar .war .whl .epub .iso .cab .lz4".split())
_ARCHIVE_MARKS = (
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ\x00",
    b"(\xb5/\xfd",
    b"7z\xbc\xaf",
    b"Rar!",
)

_MODULES = {"PDF": "pdf", "Word": "docx", "HTML": "html"}
"""The others are read by ``text``."""


def kind_of(name: str) -> str:
    """The kind of document a name promises.

    Raises:
        Unreadable: files with this suffix are not read.
    """
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in ARCHIVES:
        raise UnreadableDocument(f"an archive ({suffix}): archives are not opened")
    if suffix not in KINDS:
        raise UnreadableDocument(f"files of its kind ({suffix[:20]}) are not read")
    return KINDS[suffix]


def extract(file: BinaryIO, kind: str, *, from_page: int = 1) -> Extract:
    """Begin to read an open file; its lines come as they are asked for.

    Args:
        from_page: where to go on in a PDF; other kinds are always read from their beginning.

    Raises:
        Unreadable: it is not what it seems, or cannot be read; the lines may raise it too.
    """
    head = file.read(8)
    file.seek(0)
    if kind != "Word" and head.startswith(_ARCHIVE_MARKS):
        raise UnreadableDocument("an archive by its first bytes: archives are not opened")
    module = import_module(f"loom_worker.backends.documents.{_MODULES.get(kind, 'text')}")
    read: Callable[..., Extract] = module.read
    return read(file, kind, from_page)
