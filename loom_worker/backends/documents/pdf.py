"""The text of a PDF, page by page, by pypdf; its limits on what a stream may unpack to are lowered.

A page that pypdf cannot read says so. Scripts, attachments, forms and images are not looked at.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO

from pypdf import PdfReader, overwrite_configuration
from pypdf.errors import DependencyError, DeprecationError, FileNotDecryptedError, PyPdfError

from loom_worker.backends.documents.extract import MAX_TITLE_CHARS, Extract, Line, UnreadableDocument

MAX_PAGES = 20_000
MAX_STREAM_BYTES = 20_000_000
"""Bytes of one unpacked stream; a page of text has some thousands."""

_BROKEN = (
    *(PyPdfError, DeprecationError, AssertionError, AttributeError, ArithmeticError, LookupError),
    *(NotImplementedError, OSError, RecursionError, TypeError, ValueError, struct.error),
)
"""What pypdf raises over broken files, as tried with 3,000 of them; its own errors are only some of that."""


def read(file: BinaryIO, _kind: str, from_page: int) -> Extract:
    """The lines of the pages from ``from_page`` on; a page without text is one empty line."""
    _lower_limits()
    try:
        reader = PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableDocument("it is encrypted")
        pages = len(reader.pages)
        title = _title(reader)
    except (DependencyError, FileNotDecryptedError) as error:
        raise UnreadableDocument("it is encrypted") from error
    except _BROKEN as error:
        raise UnreadableDocument(f"it cannot be read as PDF ({type(error).__name__})") from error
    if pages > MAX_PAGES:
        raise UnreadableDocument(f"it has {pages} pages; at most {MAX_PAGES} are read")
    return Extract(_lines(reader, from_page, pages), title=title, pages=pages)


def _lower_limits() -> None:
    """Only for this context, in addition to pypdf's own limits on entries and depths."""
    overwrite_configuration(
        zlib_maximum_output_length=MAX_STREAM_BYTES,
        lzw_maximum_output_length=MAX_STREAM_BYTES,
        run_length_maximum_output_length=MAX_STREAM_BYTES,
        array_based_stream_maximum_output_length=MAX_STREAM_BYTES,
        stream_decoding_work_maximum_length=4 * MAX_STREAM_BYTES,
        jbig2dec_binary=None,  # no other program is started
        disable_legacy_handling=True,
    )


def _title(reader: PdfReader) -> str:
    title = reader.metadata.title if reader.metadata else None
    return _clean(" ".join(str(title or "").split())[:MAX_TITLE_CHARS])


def _lines(reader: PdfReader, from_page: int, pages: int) -> Iterator[Line]:
    broken = 0
    for number in range(from_page, pages + 1):
        try:
            text = _clean(reader.pages[number - 1].extract_text()).rstrip()
        except _BROKEN as error:
            text = f"[this page cannot be read: {type(error).__name__}]"
            broken += 1
        if broken == pages:
            raise UnreadableDocument("none of its pages can be read")
        yield from (Line(line.rstrip(), page=number) for line in text.split("\n"))


def _clean(text: str) -> str:
    """Without what fonts without a proper map give: NUL, and lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
