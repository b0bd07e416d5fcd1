"""Server-sent events whose data is JSON."""

import json
import math
import re
from collections.abc import Iterable, Iterator

from loom_worker.core.errors import StreamBroken
from loom_worker.core.values.json import Json
from loom_worker.llm.response import MALFORMED, TooLong

MAX_EVENT_BYTES = 4 * 1024 * 1024
"""Longest event that is read unless the caller says otherwise."""
_BOM = b"\xef\xbb\xbf"
_OF_A_REPLY = re.compile("message_|content_block_")
"""Names of events without which a reply would lack something."""


def events(chunks: Iterable[bytes], *, max_bytes: int = MAX_EVENT_BYTES) -> Iterator[Json]:
    """Split a body of server-sent events into the JSON objects in it; an unfinished last event is left out.

    The name of an event of a reply is the ``type`` of an object without one, and what an ``error`` event holds becomes
    its ``error``; ``[DONE]`` becomes an event of type ``done``. Keep-alives (no data, ``ping``) are passed over. A body
    or line that is bare JSON is an event, too: some servers answer so in spite of ``stream: true``, errors above all.

    Args:
        max_bytes: the longest line, and the most data of one event; a body without any line break is one line.

    Raises:
        StreamBroken: the data of an event is malformed.
        TooLong: a line or an event is longer than it may be.
    """
    name, data, size_bytes, is_bare = "", list[bytes](), 0, False
    for line in _lines(chunks, max_bytes):
        if is_bare:
            data.append(line)
        elif line.startswith(b"data:"):
            data.append(line[5:])
        elif line.startswith(b"event:"):
            name = line[6:].decode("utf-8", "replace").strip()
        elif not line:
            if (event := _event(name, b"\n".join(data).strip())) is not None:
                yield event
            name, data, size_bytes = "", [], 0
        elif line.lstrip().startswith(b"{"):
            if (event := _whole(line)) is not None:
                yield event
            else:
                is_bare, data = True, [line]
        size_bytes += len(line) if data else 0
        _check(size_bytes, max_bytes)
    if is_bare:
        yield json_object(b"\n".join(data))


def _event(name: str, data: bytes) -> Json | None:
    """The object in an event; None if it only keeps the connection alive."""
    if data == b"[DONE]":
        return {"type": "done"}
    if not data.startswith(b"{"):
        if data and _OF_A_REPLY.match(name):
            raise StreamBroken(MALFORMED)
        return {"type": "error", "error": data.decode("utf-8", "replace")} if data and name == "error" else None
    event = json_object(data)
    if name == "error":
        return {"type": "error", "error": event.get("error") or event}
    return {"type": name, **event} if _OF_A_REPLY.match(name) else event


def _whole(line: bytes) -> Json | None:
    try:
        return json_object(line)
    except StreamBroken:
        return None


def _lines(chunks: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Lines, which end with CRLF, LF or CR; not httpx' own, which end at U+2028 too, which JSON may contain."""
    parts, is_after_cr = bytearray(), False
    for chunk in filter(None, chunks):
        text = chunk[1:] if is_after_cr and chunk[:1] == b"\n" else chunk
        is_after_cr = chunk[-1:] == b"\r"
        head, *more = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        parts += head
        for piece in more:
            yield bytes(parts).removeprefix(_BOM)
            parts = bytearray(piece)
        _check(len(parts), max_bytes)
    if parts:
        yield bytes(parts).removeprefix(_BOM)


def _check(size_bytes: int, max_bytes: int) -> None:
    if size_bytes > max_bytes:
        raise TooLong(f"more than {max_bytes} bytes in one event")


def json_object(data: bytes) -> Json:
    """Read one event's data; StreamBroken: it holds no JSON object."""
    try:
        try:
            event = json.loads(data)
        except ValueError:
            # Python reads no integer of more than 4300 digits; as an infinity it spoils its call, not the reply.
            event = json.loads(data, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise StreamBroken(MALFORMED) from error
    if not isinstance(event, dict):
        raise StreamBroken(MALFORMED)
    return event


def _integer(digits: str) -> float:
    try:
        return int(digits)
    except ValueError:
        return math.inf
