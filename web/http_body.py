"""A request's body: where it ends, and how a view reads one that is still coming in."""

import io
import queue
import re
from collections.abc import Callable
from typing import Any

from werkzeug.exceptions import ClientDisconnected

from web.http_head import bad_request

HELD_BYTES = 256 * 1024
"""A body is not read on while its view has not taken so many bytes of it."""
_SIZE_LINE = re.compile(rb"(0|[1-9a-fA-F][0-9a-fA-F]{0,9})\r\n")
_LONGEST_LINE = 8192
"""Bytes of a trailer; trailers are thrown away."""


class Body:
    """Takes a body off what the client sends."""

    def __init__(self, length: int | None) -> None:
        """Args: length: as declared; None: it comes in chunks."""
        self.is_whole = length == 0
        self._left = length or 0
        self._is_chunked, self._is_chunk, self._is_trailer = length is None, False, False

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """A piece of the body, and what is left: of the body as yet incomplete, or behind its end.

        Raises:
            Refused: 400, it is not in chunks as RFC 9112 has them. Extensions and leading zeros are not taken, as another
                server might read them in another way.
        """
        body = bytearray()
        while data and not self.is_whole:
            if self._left:
                body += data[: self._left]
                data, self._left = data[self._left :], self._left - min(self._left, len(data))
                self.is_whole = not (self._left or self._is_chunked)
                continue
            line, end, rest = data.partition(b"\r\n")
            if not end:
                if len(line) > (_LONGEST_LINE if self._is_trailer else 12):
                    raise bad_request("A line of the chunked body is too long")
                break
            self._read_line(line + end)
            data = rest
        return bytes(body), data

    def _read_line(self, line: bytes) -> None:
        if self._is_trailer:
            self.is_whole = line == b"\r\n"
        elif self._is_chunk:
            if line != b"\r\n":
                raise bad_request("A chunk is longer than its size")
            self._is_chunk = False
        elif (found := _SIZE_LINE.fullmatch(line)) is not None:
            self._left = int(found[1], 16)
            self._is_chunk, self._is_trailer = self._left > 0, self._left == 0
        else:
            raise bad_request("The size of a chunk is not a number alone, without leading zeros")


class BodyStream(io.RawIOBase):
    """A body that its view reads while it comes in; given by the loop, read by a thread."""

    def __init__(self, taken: Callable[[], Any]) -> None:
        """Args: taken: called by the reading thread once it has taken what was there."""
        self.unread_bytes = 0
        self._taken = taken
        self._pieces: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._piece: bytes | None = b""

    def give(self, piece: bytes | None) -> None:
        """A further piece; None: the client has gone before the end; empty: that was all."""
        self.unread_bytes += len(piece or b"")
        self._pieces.put(piece)

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Wait for a piece.

        Raises:
            ClientDisconnected: there is no rest.
        """
        if not self._piece:
            self._piece = self._pieces.get()
            if not self._piece:
                self._pieces.put(self._piece)  # said again to whoever asks again
        if self._piece is None:
            raise ClientDisconnected
        count = min(len(buffer), len(self._piece))
        buffer[:count], self._piece = self._piece[:count], self._piece[count:]
        self.unread_bytes -= count
        self._taken()
        return count
