"""Small files of every kind that Loom takes, and of some that it does not."""

import io
import struct
import zlib

from pypdf import PdfWriter


def png(width: int = 3, height: int = 2, *, filler: int = 0) -> bytes:
    """A whole png of one colour; filler: bytes of a comment that nothing compresses to less."""
    is_small = width * height < 5_000_000  # of others only the head is made
    rows = zlib.compress((b"\0" + b"\x10\x80\xf0" * width) * height) if is_small else b""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), *([(b"tEXt", bytes(filler))] if filler else []), (b"IDAT", rows), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, chunks))


def _chunk(named: tuple[bytes, bytes]) -> bytes:
    name, data = named
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def jpeg(width: int = 640, height: int = 480, *, before: int = 20_000) -> bytes:
    """The head of a jpeg whose frame stands behind a camera's own data; before: bytes of that."""
    own = b"\xff\xe1" + struct.pack(">H", before + 2) + b"\xc0" * before
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\x00"
    return b"\xff\xd8" + own + b"\xff\xff\xdb\x00\x04ab" + frame + b"\xff\xd9"


def gif(width: int = 30, height: int = 20) -> bytes:
    """The head of a gif."""
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def webp(form: bytes, width: int = 300, height: int = 200) -> bytes:
    """The head of a webp image; form: VP8X, VP8L or VP8 with a space."""
    sizes = {
        b"VP8X": b"\0" * 4 + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
        b"VP8L": b"\x2f" + ((height - 1) << 14 | (width - 1)).to_bytes(4, "little"),
        b"VP8 ": b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height),
    }
    return b"RIFF" + struct.pack("<I", 40) + b"WEBP" + form + struct.pack("<I", 10) + sizes[form]


def pdf(pages: int = 2, *, password: str = "") -> bytes:
    """A PDF of empty pages; password: it is encrypted."""
    writer, file = PdfWriter(), io.BytesIO()
    for _ in range(pages):
        writer.add_blank_page(595, 842)
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    writer.write(file)
    return file.getvalue()
