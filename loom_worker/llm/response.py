"""An open response of the SDK's, as WatchedBody wants it, and bounds for what the SDK itself reads of one."""

import socket
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_worker.core.errors import StreamBroken

if TYPE_CHECKING:
    import anthropic
    import httpx2

PLAIN = {"Accept-Encoding": "identity"}
"""Header of each call: some kilobytes that are compressed can become gigabytes."""
GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
"""For zlib: find out from the first bytes which of the two it is."""
CHUNK_BYTES = 64 * 1024
AT_ONCE = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing resets the connection."""
MAX_ERROR_BYTES = 64 * 1024
"""Of the body of a refusal; the SDK reads all of it. 200 characters of its message are used."""


@dataclass(frozen=True, slots=True)
class Response:
    """A stream of status 200."""

    stream: "anthropic.Stream[object]"

    def chunks(self) -> Iterator[bytes]:
        """The body, as it comes in; of a compressed one too never more at a time than CHUNK_BYTES.

        Raises:
            StreamBroken: it is compressed in a way that nobody asked for.
        """
        response = self.stream.response
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding in ("", "identity"):
            return response.iter_raw()
        if encoding in ("gzip", "deflate"):
            return _inflated(response.iter_raw())
        raise StreamBroken("The model's provider compressed its reply although it was asked not to.")

    def close(self) -> None:
        """See Body.close."""
        self.stream.close()

    def hang_up(self) -> None:
        """See Body.hang_up."""
        # Closing a socket does not wake a thread that reads from it, shutting it down does. SSLSocket's own method
        # would take the TLS object away from under that thread.
        network = self.stream.response.extensions.get("network_stream")
        connection = network.get_extra_info("socket") if network else None
        if isinstance(connection, socket.socket):
            with suppress(OSError):
                # Closed without a reset, a server that waits for room in our buffer would wait a minute more.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _inflated(chunks: Iterator[bytes]) -> Iterator[bytes]:
    inflate = zlib.decompressobj(GZIP_OR_ZLIB)
    for chunk in chunks:
        rest = chunk
        while rest:
            try:
                piece = inflate.decompress(rest, CHUNK_BYTES)
            except zlib.error as error:
                raise StreamBroken("The model's provider sent a malformed reply.") from error
            if piece:
                yield piece
            rest = inflate.unconsumed_tail


def bounded_client() -> "httpx2.Client":
    """The HTTP client that the SDK would make, but for the bodies of refusals and redirects: those end early."""
    import anthropic

    return anthropic.DefaultHttpxClient(event_hooks={"response": [_bound]})


def _bound(response: "httpx2.Response") -> None:
    import httpx2

    if response.status_code >= 300 and isinstance(response.stream, httpx2.SyncByteStream):
        # Not even looked into where it is compressed; such bytes are no JSON, so the status alone speaks.
        response.headers.pop("content-encoding", None)
        response.stream = _beginning_of(response.stream)


def _beginning_of(stream: "httpx2.SyncByteStream") -> "httpx2.SyncByteStream":
    import httpx2

    class Beginning(httpx2.SyncByteStream):
        """The first bytes of a body."""

        def __iter__(self) -> Iterator[bytes]:
            left = MAX_ERROR_BYTES
            for chunk in stream:
                yield chunk[:left]
                left -= len(chunk)
                if left <= 0:
                    return

        def close(self) -> None:
            stream.close()

    return Beginning()
