"""Server-sent events: a parser, and a reader that goes on where a cut connection left off."""

import codecs
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from loom_worker.core.errors import StreamBroken
from loom_worker.core.values.notifications import Event

RESET = "stream.reset"
COMMENT = ":"
"""A comment of the stream, handed on as an event without an id; ``data["text"]`` says what is waited for."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 3.0
PATIENCE_S = 60.0
"""Without a single byte for so long, over all connections, the reader gives up."""


@dataclass(frozen=True, slots=True)
class SseMessage:
    """One message of a stream; ``id`` and ``type`` as sent, empty if they were not."""

    id: str
    type: str
    data: str


class SseParser:
    """Bytes in, messages out; pieces may end anywhere. https://html.spec.whatwg.org/#event-stream-interpretation."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._fields: dict[str, list[str]] = {}

    def feed(self, piece: bytes) -> list[SseMessage]:
        """The messages that this piece completes, and comments."""
        text = self._rest + self._decoder.decode(piece)
        # A carriage return at the end may be half of a line end.
        held = "\r" if text.endswith("\r") else ""
        lines = text.removesuffix(held).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop() + held
        messages = (self._line(line) for line in lines)
        return [message for message in messages if message is not None]

    def _line(self, line: str) -> SseMessage | None:
        if not line:
            return self._finished()
        name, _, value = line.partition(":")
        if not name:
            return SseMessage("", COMMENT, value.strip())
        self._fields.setdefault(name, []).append(value.removeprefix(" "))
        return None

    def _finished(self) -> SseMessage | None:
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        return SseMessage(
            id=fields.get("id", [""])[-1], type=fields.get("event", [""])[-1], data="\n".join(fields["data"])
        )


def follow(
    connect: Callable[[int], Iterable[bytes]],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Event]:
    """Every event of a turn's log once and in order, up to the final one, over as many connections as it takes.

    A ``stream.reset`` is handed on and the log read from its start again.

    Args:
        connect: opens the stream after the event with this id (0: from the start).

    Raises:
        StreamBroken: nothing came for PATIENCE_S.
    """
    last_id, pause_s, give_up_at = 0, FIRST_PAUSE_S, clock() + PATIENCE_S
    while True:
        for message in _messages(connect, last_id):
            give_up_at = clock() + PATIENCE_S
            event = _event(message)
            if event is None or not _is_next(event, last_id):
                continue
            if event.type != COMMENT:
                last_id, pause_s = event.id, FIRST_PAUSE_S
            yield event
            if event.is_final:
                return
        if clock() >= give_up_at:
            raise StreamBroken(f"no event stream for {PATIENCE_S:.0f} s; the turn itself goes on")
        sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def _messages(connect: Callable[[int], Iterable[bytes]], last_id: int) -> Iterator[SseMessage | None]:
    """The messages of one connection, and None for bytes that complete none: they too say that the server lives."""
    parser = SseParser()
    try:
        for piece in connect(last_id):
            yield from parser.feed(piece) or (None,)
    except StreamBroken:
        return


def _is_next(event: Event, last_id: int) -> bool:
    return event.id > last_id or event.type in (RESET, COMMENT)


def _event(message: SseMessage | None) -> Event | None:
    """None for what is not an event of Loom's; a reset counts as before the first."""
    if message is None:
        return None
    if message.type == COMMENT:
        return None if message.data in ("still here", "it is gone") else Event(0, COMMENT, {"text": message.data})
    if message.type == RESET:
        return Event(0, RESET, {})
    try:
        data = json.loads(message.data)
        return Event(int(message.id), message.type, data if isinstance(data, dict) else {})
    except ValueError:
        return None
