"""What a worker and its children exchange: JSON behind its length, over pipes."""

import json
import struct
from collections.abc import Callable

from loom_worker.core.values.json import Json

_LENGTH = struct.Struct(">I")
HEAD_BYTES = _LENGTH.size
MOST_BYTES = 2**32 - 1
"""Of a message."""


def packed(message: Json) -> bytes:
    """The message as it goes through the pipe; lone surrogates survive."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(body)) + body


def unpacked(read: Callable[[int], bytes], *, most_bytes: int = MOST_BYTES) -> Json | None:
    """The next message; None at the end of the pipe, also in the middle of a message.

    Args:
        read: gives exactly so many bytes, fewer only at the end.

    Raises:
        ValueError: it is longer than most_bytes, or no JSON object.
    """
    head = read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        return None
    size_bytes: int = _LENGTH.unpack(head)[0]
    if size_bytes > most_bytes:
        raise ValueError(f"a message of {size_bytes:,} bytes, at most {most_bytes:,} are read")
    body = read(size_bytes)
    if len(body) < size_bytes:
        return None
    message = json.loads(body.decode("utf-8", "surrogatepass"))
    if not isinstance(message, dict):
        raise ValueError("a message must be a JSON object")
    return message
