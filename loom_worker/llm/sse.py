"""Server-sent events whose data is JSON."""

import json
import math
from collections.abc import Iterable, Iterator

from loom_worker.core.errors import StreamBroken
from loom_worker.core.values.json import Json
from loom_worker.llm.response import TooLong

MALFORMED = "The model's provider sent a malformed reply."
MAX_EVENT_BYTES = 4 * 1024 * 1024
"""Longest event that is read unless the caller says otherwise."""


def events(chunks: Iterable[bytes], *, max_bytes: int = MAX_EVENT_BYTES) -> Iterator[Json]:
    """Split a body of server-sent events into the JSON objects in it; an unfinished last event is left out.

    Args:
        max_bytes: the longest line, and the most data of one event; a body without any line break is one line.

    Raises:
        StreamBroken: an event holds no JSON object.
        TooLong: a line or an event is longer than it may be.
    """
    data: list[bytes] = []
    size_bytes = 0
    for line in _lines(chunks, max_bytes):
        if line.startswith(b"data:"):
            data.append(line[5:])
            size_bytes += len(line)
            _check(size_bytes, max_bytes)
        elif not line and data:
            yield json_object(b"\n".join(data))
            data, size_bytes = [], 0


def _lines(chunks: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    # httpx splits lines at U+2028 and others too, which JSON may contain: split at line feeds only.
    parts = bytearray()
    for chunk in chunks:
        head, *more = chunk.split(b"\n")
        parts += head
        for piece in more:
            yield bytes(parts).rstrip(b"\r")
            parts = bytearray(piece)
        _check(len(parts), max_bytes)


def _check(size_bytes: int, max_bytes: int) -> None:
    if size_bytes > max_bytes:
        raise TooLong(f"more than {max_bytes} bytes in one event")


def json_object(data: bytes) -> Json:
    """Read one event's data.

    Raises:
        StreamBroken: it holds no JSON object.
    """
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
