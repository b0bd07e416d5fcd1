"""What kind of file some bytes are: by the bytes, never by the name. No image is decoded, so none can be a bomb."""

import codecs
import io
import mimetypes
import re
import shutil
import tempfile
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import imagesize

from loom_worker.backends.documents.extract import UnreadableDocument
from loom_worker.backends.documents.reader import Reading, ReadRequest
from loom_worker.core.errors import Invalid
from loom_worker.core.values.media import PDF

MOST_PIXELS = 8_000
"""On each side of an image: Anthropic takes no more."""
UNSUPPORTED, UNREADABLE = "unsupported-media-type", "unreadable-file"
"""The problems of a file of another kind, and of one that is broken."""
KINDS = "png, jpeg, gif and webp images, PDF, and text in UTF-8"
_TEXTS = ("application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml")
_HEAD_BYTES = 1024
_IMAGE_HEAD_BYTES = 4 * 1024 * 1024
"""Searched for an image's size, behind what a camera adds: a hostile 4 MiB take 0.5 s of the processor (measured)."""
PDF_S = 5.0
"""The longest that counting a PDF's pages may take."""
_BEHIND_ALL = 1 << 30
"""No PDF has a page of this number, so no text is read."""
_PIECE_BYTES = 1 << 16
_IMAGES = {
    "image/png": rb"\x89PNG\r\n\x1a\n",
    "image/jpeg": rb"\xff\xd8\xff",
    "image/gif": rb"GIF8[79]a",
    "image/webp": rb"RIFF.{4}WEBP",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """What a file is."""

    content_type: str
    width: int = 0
    height: int = 0
    pages: int = 0


def kind_of(file: BinaryIO, name: str, declared: str | None = None) -> Kind:
    """Look at a file's bytes.

    Args:
        declared: its media type, as its sender says; it only tells one kind of text from another.

    Raises:
        Invalid: it is of no kind that models are shown (slug ``unsupported-media-type``), or broken or encrypted
            (``unreadable-file``).
    """
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    for content_type, begin in _IMAGES.items():
        if re.match(begin, head, re.DOTALL):
            file.seek(0)
            width, height = imagesize.get(io.BytesIO(file.read(_IMAGE_HEAD_BYTES)), exif_rotation=False)
            if not (0 < width <= MOST_PIXELS and 0 < height <= MOST_PIXELS):
                size_px = f"{width}x{height} pixels" if min(width, height) > 0 else "a broken head"
                text = f"The image {name!r} has {size_px}; it must have 1 to {MOST_PIXELS} on each side."
                raise Invalid(text, (), UNREADABLE)
            return Kind(content_type, width, height)
    if b"%PDF-" in head:
        return Kind(PDF, pages=_pages(file, name))
    if not head or not _is_text(file):
        what = "is empty" if not head else "is of another kind"
        raise Invalid(f"The file {name!r} {what}. Files may be {KINDS}.", (), UNSUPPORTED)
    said = [declared, mimetypes.guess_type(name)[0]]
    return Kind(next((each for each in said if each and _names_text(each)), "text/plain"))


def _names_text(media_type: str) -> bool:
    return len(media_type) <= 64 and (media_type.startswith("text/") or media_type in _TEXTS) and ";" not in media_type


def _pages(file: BinaryIO, name: str) -> int:
    """The pages of a PDF, counted by a process of its own: it may be made to take all time and memory there is."""
    order: ReadRequest = {"kind": "PDF", "from_page": _BEHIND_ALL, "from_line": 1, "room_chars": 0, "for_s": PDF_S}
    file.seek(0)
    with tempfile.TemporaryFile() as copy, Reading() as reading:
        shutil.copyfileobj(file, copy)
        copy.seek(0)
        try:
            pages = reading.read(copy.fileno(), order)["pages"]
        except UnreadableDocument as error:
            raise Invalid(f"The PDF {name!r} is refused: {error}.", (), UNREADABLE) from error
    if not pages:
        raise Invalid(f"The PDF {name!r} has no pages.", (), UNREADABLE)
    return pages


def _is_text(file: BinaryIO) -> bool:
    file.seek(0)
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in iter(partial(file.read, _PIECE_BYTES), b""):
            if "\0" in decoder.decode(piece):
                return False
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
