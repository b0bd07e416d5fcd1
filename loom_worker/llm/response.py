"""A streamed HTTP response, read within a total deadline and given up at once when nobody wants it any more.

An HTTP client's timeout is per read, so a slow drip outlives it, and nothing bounds the lookup of a host name. The
blocking part therefore runs in a thread of its own and the caller waits for that thread: no fault of the server's,
in no phase of a call, holds the caller longer than its deadline.
"""

import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Protocol

from loom_worker.core.errors import Interrupted, StreamBroken
from loom_worker.core.values.chat import UNWATCHED, Watch

if TYPE_CHECKING:
    import httpx2

POLL_S = 0.25
"""How often the caller checks whether it must stop."""
MAX_BYTES = 64 * 1024 * 1024
"""Longest body that is read; a million tokens are a tenth of it."""
MAX_WAITING = 16
"""Chunks (64 KiB each at most) that are read ahead, so that a fast server cannot fill the memory."""
PLAIN = {"Accept-Encoding": "identity"}
"""Header of each call: some kilobytes that are compressed can become gigabytes."""
GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
"""Makes zlib find out from the first bytes which of the two it is."""
CHUNK_BYTES = 64 * 1024
ZSTD_STEP_BYTES = 64
"""Taken at a time: a block of four bytes becomes up to 128 KiB, and the library bounds no output."""
MALFORMED = "The model's provider sent a malformed reply."
AT_ONCE = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing resets the connection."""
MAX_ERROR_BYTES = 64 * 1024
"""Bytes of the body of an error response; the SDK reads all of it. 200 characters of its message are used."""


class ReplyBody(Protocol):
    """An open response."""

    def chunks(self) -> Iterator[bytes]:
        """The body, as it arrives."""

    def close(self) -> None:
        """Give the connection back, or drop it if the body was not read to its end."""

    def hang_up(self) -> None:
        """Wake a thread that waits for the next chunk; called from another thread."""


class ProviderCall(Protocol):
    """A call of a model's server."""

    def open(self) -> ReplyBody:
        """Send the request and return the open response; may block as long as it likes."""

    def is_given_up(self) -> bool:
        """True: nobody wants the reply any more. Asked every POLL_S and with each chunk."""


class SdkStream(Protocol):
    """The part of an SDK's ``Stream`` that is needed."""

    response: "httpx2.Response"

    def close(self) -> None:
        """Close the response."""


class TooLate(Exception):
    """The deadline passed."""


class TooLong(Exception):
    """The body has more bytes than may be read."""


class WatchedBody:
    """The chunks of one response. Use it in one thread, iterate once, and close it."""

    def __init__(
        self, call: ProviderCall, *, deadline: float, max_bytes: int = MAX_BYTES, watch: Watch = UNWATCHED
    ) -> None:
        """Begin the call.

        Args:
            deadline: ``time.monotonic()`` at which the whole must be over.
            watch: is informed of each chunk, and of each POLL_S without one.
        """
        self._call = call
        self._deadline = deadline
        self._max_bytes = max_bytes
        self._watch = watch
        self._chunks: Queue[bytes | BaseException | None] = Queue(MAX_WAITING)
        self._is_abandoned = threading.Event()
        self._has_ended = False
        self._lock = threading.Lock()
        self._body: ReplyBody | None = None
        threading.Thread(target=self._read, name="loom-llm-read", daemon=True).start()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the chunks.

        Raises:
            TooLate, TooLong: see above.
            Interrupted: the call is given up.
            Exception: whatever opening or reading raised.
        """
        size_bytes = 0
        while (chunk := self._next()) is not None:
            size_bytes += len(chunk)
            if size_bytes > self._max_bytes:
                raise TooLong(f"more than {self._max_bytes} bytes")
            yield chunk
        self._has_ended = True

    def finish_by(self, deadline: float) -> None:
        """Read and drop the rest, so that the connection can serve the next call; a failure of the rest is ignored."""
        with suppress(Empty):
            while not self._has_ended and isinstance(
                self._chunks.get(timeout=max(0.0, deadline - time.monotonic())), bytes
            ):
                continue

    def close(self) -> None:
        """Give up what still runs; the thread ends by itself, at the latest with its client's own timeout."""
        self._is_abandoned.set()
        with self._lock:
            if self._body is not None:
                self._body.hang_up()

    def _next(self) -> bytes | None:
        while True:
            if self._call.is_given_up():
                raise Interrupted("The call was given up: this process stops, or nobody wants the reply any more.")
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise TooLate("deadline")
            try:
                chunk = self._chunks.get(timeout=min(left_s, POLL_S))
            except Empty:
                self._watch.silent()
                continue
            if isinstance(chunk, BaseException):
                raise chunk
            self._watch.received()
            return chunk

    def _read(self) -> None:
        try:
            self._pass_on(self._call.open())
            self._put(None)
        except BaseException as error:  # top of a thread: the caller raises it
            self._put(error)

    def _pass_on(self, body: ReplyBody) -> None:
        self._body = body
        try:
            for chunk in () if self._is_abandoned.is_set() else body.chunks():
                self._put(chunk)
                if self._is_abandoned.is_set():
                    return
        finally:
            # Once the body is closed its connection may serve another call, which close() must not hang up.
            with self._lock:
                self._body = None
            body.close()

    def _put(self, chunk: bytes | BaseException | None) -> None:
        while not self._is_abandoned.is_set():
            try:
                self._chunks.put(chunk, timeout=POLL_S)
            except Full:
                continue
            return


@dataclass(frozen=True, slots=True)
class Response:
    """A streamed response of status 200, as the SDK gives it."""

    stream: "SdkStream"

    def chunks(self) -> Iterator[bytes]:
        """The body, as it arrives; a compressed one, too, never yields more than CHUNK_BYTES at a time.

        Raises:
            StreamBroken: it is compressed in a way that was not asked for.
        """
        response = self.stream.response
        return _unpacked(response.iter_raw(), response.headers)

    def close(self) -> None:
        self.stream.close()

    def hang_up(self) -> None:
        # Closing a socket does not wake a thread that reads from it, shutting it down does. SSLSocket's own method
        # would take the TLS object away from under that thread.
        network = self.stream.response.extensions.get("network_stream")
        connection = network.get_extra_info("socket") if network else None
        if isinstance(connection, socket.socket):
            with suppress(OSError):
                # Closed without a reset, a server that waits for room in our buffer would wait a minute more.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _unpacked(chunks: Iterable[bytes], headers: Mapping[str, str]) -> Iterator[bytes]:
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return iter(chunks)
    if encoding not in _UNPACK:
        raise StreamBroken(f"The model's provider compressed its reply ({encoding[:20]}) although it was asked not to.")
    return _UNPACK[encoding](chunks)


def _inflated(chunks: Iterable[bytes]) -> Iterator[bytes]:
    inflate, piece = zlib.decompressobj(GZIP_OR_ZLIB), b""
    for chunk in chunks:
        rest = chunk
        while rest or len(piece) == CHUNK_BYTES:
            if inflate.eof:  # another member follows, or padding
                inflate, rest = zlib.decompressobj(GZIP_OR_ZLIB), rest.lstrip(b"\0")
            try:
                piece = inflate.decompress(rest, CHUNK_BYTES)
            except zlib.error as error:
                raise StreamBroken(MALFORMED) from error
            yield piece
            rest = inflate.unconsumed_tail or inflate.unused_data


def _from_brotli(chunks: Iterable[bytes]) -> Iterator[bytes]:
    import brotli

    unpack, piece = brotli.Decompressor(), b""
    for chunk in chunks:
        rest = chunk
        while rest or piece:
            if unpack.is_finished():
                unpack = brotli.Decompressor()
            try:
                piece = unpack.process(rest, output_buffer_limit=CHUNK_BYTES)
            except brotli.error as error:
                raise StreamBroken(MALFORMED) from error
            yield piece
            rest = b""


def _from_zstd(chunks: Iterable[bytes]) -> Iterator[bytes]:
    import zstandard

    unpack = zstandard.ZstdDecompressor().decompressobj(read_across_frames=True)
    for chunk in chunks:
        for n in range(0, len(chunk), ZSTD_STEP_BYTES):
            try:
                yield unpack.decompress(chunk[n : n + ZSTD_STEP_BYTES])
            except zstandard.ZstdError as error:
                raise StreamBroken(MALFORMED) from error


_UNPACK = {"gzip": _inflated, "x-gzip": _inflated, "deflate": _inflated, "br": _from_brotli, "zstd": _from_zstd}


def bounded_client(before_sending: "Callable[[httpx2.Request], None]") -> "httpx2.Client":
    """The HTTP client that an SDK would make, except that the bodies of errors and redirects end early.

    Args:
        before_sending: sees each request before it goes out.
    """
    import anthropic
    import httpx2

    class Beginning(httpx2.SyncByteStream):
        def __init__(self, stream: httpx2.SyncByteStream, headers: Mapping[str, str]) -> None:
            self._stream = stream
            self._headers = headers

        def __iter__(self) -> Iterator[bytes]:
            left = MAX_ERROR_BYTES
            with suppress(StreamBroken):  # then the status alone counts
                for chunk in _unpacked(self._stream, self._headers):
                    yield chunk[:left]
                    left -= len(chunk)
                    if left <= 0:
                        return

        def close(self) -> None:
            self._stream.close()

    def shorten_error(response: httpx2.Response) -> None:
        if response.status_code >= 300 and isinstance(response.stream, httpx2.SyncByteStream):
            response.stream = Beginning(response.stream, dict(response.headers))
            response.headers.pop("content-encoding", None)

    return anthropic.DefaultHttpxClient(event_hooks={"request": [before_sending], "response": [shorten_error]})
