"""Server-sent events whose data is JSON."""

import json
import math
from collections.abc import Iterable, Iterator

from loom_worker.errors import StreamBroken
from loom_worker.values.json import Json

MALFORMED = "The model's provider sent a malformed reply."


def events(chunks: Iterable[bytes]) -> Iterator[Json]:
    """Split a body of server-sent events into the JSON objects in it; an unfinished last event is left out.

    Raises:
        StreamBroken: an event holds no JSON object.
    """
    data: list[bytes] = []
    for line in _lines(chunks):
        if line.startswith(b"data:"):
            data.append(line[5:])
        elif not line and data:
            yield json_object(b"\n".join(data))
            data = []


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    # httpx splits lines at U+2028 and others too, which JSON may contain: split at line feeds only.
    parts: list[bytes] = []
    for chunk in chunks:
        head, *more = chunk.split(b"\n")
        parts.append(head)
        for piece in more:
            yield b"".join(parts).rstrip(b"\r")
            parts = [piece]


def json_object(data: bytes) -> Json:
    """Read one event's data.

    Raises:
        StreamBroken: it holds no JSON object.
    """
    try:
        event = _read(data)
    except (ValueError, RecursionError) as error:
        raise StreamBroken(MALFORMED) from error
    if not isinstance(event, dict):
        raise StreamBroken(MALFORMED)
    return event


def _read(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        # Python reads no integer of more than 4300 digits; as an infinity it spoils the call it is in, not the reply.
        return json.loads(data, parse_int=_integer)


def _integer(digits: str) -> float:
    try:
        return int(digits)
    except ValueError:
        return math.inf
