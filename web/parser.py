"""How a request is read: waitress' parser, without what two servers could understand in two ways.

A proxy and the server behind it must agree where a request ends and whom it is for. Where they might not, the
request is refused and its connection closed, so that nothing behind it is taken for a request (RFC 9112, 11.2).
"""

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from waitress.parser import HTTPRequestParser, ParsingError
from waitress.utilities import BadRequest, RequestEntityTooLarge

from web.auth import host_name

if TYPE_CHECKING:
    from web.detached import HttpTask

LINGER_BYTES = 64 * 1024 * 1024
"""Of a body over the limit this much is thrown away before the connection is cut."""

_END = b"\r\n\r\n"
_BARE_LF = re.compile(rb"(?<!\r)\n")
_FOLDED = re.compile(rb"\r\n[ \t]")
_VERSIONS = frozenset({"1.0", "1.1"})


class RequestParser(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """One request: its head strictly, and a body over the limit dropped as it comes in and answered behind it.

    Waitress answers such a body at once and closes; with the body still under way TCP then resets the connection,
    and most clients report that instead of the 413. A client that asks first (``Expect: 100-continue``) is answered at
    once.
    """

    completed = False
    expect_continue = False
    headers_finished = False
    header_plus = b""
    task: "HttpTask | None" = None
    """What serves it, once something does."""

    def received(self, data: bytes) -> int:
        """Read on; the request is complete once the unwanted body has passed by."""
        if not (self.completed or self.headers_finished) and self._has_bare_line_feed(data):
            # Waitress looks for CR LF alone, so a head of such lines would never end.
            self.error = BadRequest("A line of the head ends without CR LF")
            self.completed = True
            return len(data)
        consumed: int = super().received(data)
        if self.completed and isinstance(self.error, RequestEntityTooLarge):
            self._linger()
        return consumed

    def parse_header(self, header_plus: bytes) -> None:
        """Read the head.

        Raises:
            ParsingError: it is malformed, or could be read in two ways.
        """
        if _FOLDED.search(header_plus):
            raise ParsingError("A header is continued on a second line")
        lines = header_plus.split(b"\r\n")[1:]
        names = [line.partition(b":")[0].upper() for line in lines]
        _require_one_meaning(lines, names)
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            # Such as http://[x, at which waitress drops the connection without an answer.
            raise ParsingError("Bad URI") from error
        if self.version not in _VERSIONS:
            raise ParsingError("The version must be HTTP/1.0 or HTTP/1.1")
        if b"TRANSFER-ENCODING" in names and self.version != "1.1":
            raise ParsingError("Transfer-Encoding needs HTTP/1.1")
        self._require_host()

    def _require_host(self) -> None:
        host = self.headers.get("HOST")
        if host is None:
            if self.version == "1.1":
                raise ParsingError("The Host header is missing")
        elif host_name(host) is None:
            raise ParsingError("The Host header is not host[:port]")
        # RFC 9112, 3.2.2: a proxy goes by a target that names a host, and Loom by the header.
        has_target_host = host is not None and re.match("[^/]*://", self.request_uri) is not None
        if has_target_host and urlsplit(self.request_uri).netloc.lower() != host.lower():
            raise ParsingError("The target and the Host header name two hosts")

    def _has_bare_line_feed(self, data: bytes) -> bool:
        # What came before has been looked at; its last bytes may be the CR, or the beginning of the head's end.
        before = self.header_plus[-3:]
        head = (before + data).partition(_END)[0]
        return _BARE_LF.search(head, len(before)) is not None

    def _linger(self) -> None:
        if self.expect_continue:
            self.expect_continue = False  # Or waitress would ask for the very body it has refused.
            return
        self.body_rcv.buf.close()
        self.body_rcv.buf = _Drain()
        is_over = self.body_rcv.completed or self.body_rcv.error
        self.completed = bool(is_over) or self.body_bytes_received > LINGER_BYTES


def _require_one_meaning(lines: list[bytes], names: list[bytes]) -> None:
    for name in (b"HOST", b"CONTENT-LENGTH", b"TRANSFER-ENCODING"):
        if names.count(name) > 1:
            raise ParsingError(f"{name.decode().title()} is there twice")
    if b"TRANSFER-ENCODING" not in names:
        return
    if b"CONTENT-LENGTH" in names:
        raise ParsingError("Content-Length and Transfer-Encoding exclude each other")
    if lines[names.index(b"TRANSFER-ENCODING")].partition(b":")[2].strip(b" \t").lower() != b"chunked":
        raise ParsingError("The only Transfer-Encoding is chunked")


class _Drain:
    """A buffer that keeps nothing."""

    def append(self, data: bytes) -> None:
        """Forget the data."""

    def close(self) -> None:
        """Hold nothing, release nothing."""

    def __len__(self) -> int:
        return 0
