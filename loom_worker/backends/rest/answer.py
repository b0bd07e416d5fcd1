"""What an API answered, as the model gets it: a JSON value, text, or what there is to say of anything else. Pure."""

import json
import re
import zlib
from dataclasses import dataclass
from email.message import Message

from loom_worker.backends.rest.auth import Veil
from loom_worker.core.errors import ToolFailed
from loom_worker.guard.net.http import HttpResponse

MAX_SHOWN_CHARS = 500
"""Of the body of an answer that is a failure."""
_TOLD = ("content-type", "content-length", "etag", "last-modified", "allow")
"""Headers of an answer that has no body by design."""
_CHARSETS = frozenset(
    {"utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252", "utf-16", "utf-16le", "utf-16be"}
)
"""Others are read as UTF-8: not every codec of Python is one of text, and some are slow."""
_GZIP = b"\x1f\x8b"
_TEXT = re.compile(r"text/.*|application/([a-z0-9.+-]+\+)?(json|xml|yaml)|application/(x-ndjson|x-yaml|javascript)")


@dataclass(frozen=True, slots=True)
class _Content:
    data: bytes
    is_longer: bool
    """True: ``data`` is only the beginning."""
    media_type: str
    """In lower case, without parameters; empty if the server named none."""
    charset: str

    @property
    def text(self) -> str:
        return self.data.decode(self.charset, "replace")


def read(answer: HttpResponse, *, method: str, veil: Veil, max_bytes: int) -> object:
    """Return what the model gets of an answer of status 2xx.

    Args:
        max_bytes: of the body once unpacked; what is longer comes as text, cut, and says so.

    Raises:
        ToolFailed: UNAVAILABLE: the body is packed in a way that was not asked for, or broken.
    """
    content = _content(answer, max_bytes)
    if method == "HEAD":
        headers = {name: answer.headers[name] for name in _TOLD if name in answer.headers}
        return veil.value({"status": answer.status, "headers": headers})
    if not content.data:
        return {"status": answer.status}
    if content.media_type and not _TEXT.fullmatch(content.media_type):
        return veil.value({"bytes": len(content.data), "content_type": content.media_type[:200]})
    if content.is_longer:
        return veil.text(f"[Warning: longer than {max_bytes:,} bytes; only its beginning follows]\n{content.text}")
    return _parsed(content, veil)


def failure(answer: HttpResponse, *, veil: Veil, max_bytes: int) -> str:
    """The beginning of the text that explains a failure, in one line; empty if there is none."""
    try:
        content = _content(answer, max_bytes)
    except ToolFailed:
        return ""
    if content.media_type and not _TEXT.fullmatch(content.media_type):
        return ""
    # The secret is looked for before the text is cut, which could otherwise leave half of it.
    line = " ".join(veil.text(content.text).split())
    return line if len(line) <= MAX_SHOWN_CHARS else line[: MAX_SHOWN_CHARS - 1] + "…"


def _parsed(content: _Content, veil: Veil) -> object:
    """The JSON value; text where it is none, such as with NaN, or is nested deeper than a parser goes."""
    if content.media_type and not content.media_type.endswith("json"):
        return veil.text(content.text)
    try:
        return veil.value(json.loads(content.text, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return veil.text(content.text)


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _content(answer: HttpResponse, max_bytes: int) -> _Content:
    data, is_longer = answer.body[:max_bytes], answer.is_longer or len(answer.body) > max_bytes
    packed = answer.headers.get("Content-Encoding", "").strip().lower()
    if data and packed in ("gzip", "x-gzip"):
        data, is_longer = _unpacked(data, max_bytes, is_longer)
    elif data and packed not in ("", "identity"):
        raise ToolFailed("the answer is packed in a way that was not asked for", "UNAVAILABLE")
    parsed = Message()
    parsed["Content-Type"] = answer.headers.get("Content-Type", "")
    charset = (parsed.get_content_charset() or "utf-8").lower()
    media_type = parsed.get_content_type() if answer.headers.get("Content-Type") else ""
    return _Content(data, is_longer, media_type, charset if charset in _CHARSETS else "utf-8")


def _unpacked(packed: bytes, max_bytes: int, is_cut: bool) -> tuple[bytes, bool]:
    """Unpack gzip up to ``max_bytes``: a megabyte can stand for a thousand of them."""
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        data = unpacker.decompress(packed, max_bytes + 1)
    except zlib.error as error:
        raise ToolFailed("the answer is not the gzip that it says it is", "UNAVAILABLE") from error
    is_longer = is_cut or len(data) > max_bytes
    if not is_longer and (not unpacker.eof or unpacker.unused_data.startswith(_GZIP)):
        raise ToolFailed("the answer's gzip ends too early, or has several parts", "UNAVAILABLE")
    return data[:max_bytes], is_longer
