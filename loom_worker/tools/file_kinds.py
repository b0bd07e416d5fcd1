"""What kind of file some bytes are: by the bytes, never by the name. No image is decoded, so none can be a bomb."""

import codecs
import mimetypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from loom_worker.backends.documents.extract import UnreadableDocument
from loom_worker.core.errors import Invalid
from loom_worker.core.values.media import PDF

MOST_PIXELS = 8_000
"""On each side of an image: Anthropic takes no more."""
UNSUPPORTED, UNREADABLE = "unsupported-media-type", "unreadable-file"
"""The problems of a file of another kind, and of one that is broken."""
KINDS = "png, jpeg, gif and webp images, PDF, and text in UTF-8"
_TEXTS = ("application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml")
_HEAD_BYTES = 1024
_PIECE_BYTES = 1 << 16
_SEGMENTS = 1_000
"""Of a JPEG, before its size."""


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
    for content_type, (is_it, size) in _IMAGES.items():
        if is_it(head):
            width, height = size(head, file)
            if not (0 < width <= MOST_PIXELS and 0 < height <= MOST_PIXELS):
                size_px = f"{width}x{height} pixels" if width and height else "a broken head"
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


def _png(head: bytes, _: BinaryIO) -> tuple[int, int]:
    return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])


def _gif(head: bytes, _: BinaryIO) -> tuple[int, int]:
    return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")


def _webp(head: bytes, _: BinaryIO) -> tuple[int, int]:
    def number(start: int, end: int) -> int:
        return int.from_bytes(head[start:end], "little")

    match head[12:16] if len(head) >= 25 else b"":
        case b"VP8X":
            return number(24, 27) + 1, number(27, 30) + 1
        case b"VP8L":
            return (number(21, 25) & 0x3FFF) + 1, (number(21, 25) >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return number(26, 28) & 0x3FFF, number(28, 30) & 0x3FFF
    return 0, 0


def _jpeg(_: bytes, file: BinaryIO) -> tuple[int, int]:
    """The size in the first frame's head; a camera's own data may stand before it."""
    file.seek(2)
    for _segment in range(_SEGMENTS):
        mark = file.read(4)
        if len(mark) < 4 or mark[0] != 0xFF:
            break
        if mark[1] == 0xFF:  # a mark may have several such bytes before it
            file.seek(-3, 1)
        elif 0xC0 <= mark[1] <= 0xCF and mark[1] not in (0xC4, 0xC8, 0xCC):
            frame = file.read(5)
            return int.from_bytes(frame[3:5]), int.from_bytes(frame[1:3])
        else:
            file.seek(max(0, int.from_bytes(mark[2:4]) - 2), 1)
    return 0, 0


_IMAGES: dict[str, tuple[Callable[[bytes], bool], Callable[[bytes, BinaryIO], tuple[int, int]]]] = {
    "image/png": (lambda head: head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR", _png),
    "image/jpeg": (lambda head: head.startswith(b"\xff\xd8\xff"), _jpeg),
    "image/gif": (lambda head: head.startswith((b"GIF87a", b"GIF89a")), _gif),
    "image/webp": (lambda head: head.startswith(b"RIFF") and head[8:12] == b"WEBP", _webp),
}


def _pages(file: BinaryIO, name: str) -> int:
    from loom_worker.backends.documents import pdf  # here, for it takes a moment to load

    file.seek(0)
    try:
        pages = pdf.read(file, "pdf", 1).pages or 0
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
