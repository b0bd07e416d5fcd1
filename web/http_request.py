"""A request as it comes in: what two servers could read in two ways is refused (RFC 9112, 11.2)."""

import io
import queue
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from werkzeug.datastructures import Headers
from werkzeug.exceptions import ClientDisconnected

from web.answers import encode
from web.auth import host_name
from web.caller import request_id_of, traceparent_of
from web.detached import FinalAnswer
from web.problems import MEDIA_TYPE, ProblemDetails, Refused

HELD_BYTES = 256 * 1024
"""A body is not read on while its view has not taken so many bytes of it."""
_CHUNK = re.compile(rb"\r\n(?:0\r\n\r\n|([1-9a-fA-F][0-9a-fA-F]{0,9})\r\n)")
_BEGUN = re.compile(rb"(\r(\n(0(\r(\n\r?)?)?|[1-9a-fA-F][0-9a-fA-F]{0,9}\r?)?)?)?")

_LENGTH = re.compile(r"0|[1-9][0-9]*")
_TARGET = re.compile(r"(?:https?://(?P<host>[^/?#]+))?/*(?P<path>[!-~]*)", re.IGNORECASE)
_LONGEST_TARGET = 1000
"""Characters of a refused request's path that its answer repeats."""
_ECHOED = ("X-Request-Id", "traceparent")
_SINGLE = frozenset({"HTTP_HOST", "CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING"})


def bad_request(detail: str) -> Refused:
    """400 as the server itself answers."""
    return Refused(ProblemDetails(400, "bad-request", detail))


def refusal(problem: ProblemDetails, head: bytes) -> FinalAnswer:
    """The answer of the server itself to a request whose head has come in so far."""
    told = {name: re.search(rf"\r\n{name}:[ \t]*([ -~]*)".encode(), head, re.IGNORECASE) for name in _ECHOED}
    sent = Headers([(name, found[1].decode()) for name, found in told.items() if found])
    headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store", "traceparent": traceparent_of(sent)}
    request_id = headers["X-Request-Id"] = request_id_of(sent)
    words = head.partition(b"\r\n")[0].split()
    path = words[1].partition(b"?")[0] if len(words) > 1 else b""
    instance = quote(path[:_LONGEST_TARGET], safe="/%") or "/"
    return FinalAnswer(problem.status, headers, encode(problem.as_json(instance=instance, request_id=request_id)))


def environ_of(method: bytes, target: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    """WSGI's environ, as far as the head tells it.

    Args:
        version: such as ``1.1``.
        headers: names in lower case.

    Raises:
        Refused: 400, it is no request, or can be read in two ways.
    """
    environ: dict[str, Any] = {}
    for name, value in headers:
        if b"_" in name:
            continue  # it would stand for the name with hyphens, which a proxy may have checked
        key, text = _key(name), value.decode("latin-1").rstrip(" \t")
        if key in environ:
            if key in _SINGLE:
                raise bad_request(f"{name.decode().title()} is there twice")
            text = f"{environ[key]}{'; ' if key == 'HTTP_COOKIE' else ', '}{text}"
        environ[key] = text
    if version not in ("1.0", "1.1"):
        raise bad_request("The version must be HTTP/1.0 or HTTP/1.1")
    _require_one_end(environ, version)
    host, path = _parts(target)
    _require_host(environ.get("HTTP_HOST"), host, version)
    path, _, query = path.partition("#")[0].partition("?")
    environ.update(
        REQUEST_METHOD=method.decode(),
        SCRIPT_NAME="",
        PATH_INFO=unquote_to_bytes(path).decode("latin-1") if "%" in path else path,
        QUERY_STRING=query,
        REQUEST_URI=target.decode(),
        SERVER_PROTOCOL=f"HTTP/{version}",
    )
    return environ


def _parts(target: bytes) -> tuple[str | None, str]:
    """The host that a target names, if any, and its path with the query; slashes at its beginning count as one."""
    found = _TARGET.fullmatch(target.decode("latin-1"))
    if found is None:
        raise bad_request("Bad URI")
    return found["host"], found["path"] if found["path"] == "*" else f"/{found['path']}"


@lru_cache(maxsize=512)
def _key(name: bytes) -> str:
    key = name.decode("latin-1").upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


def _require_one_end(environ: dict[str, Any], version: str) -> None:
    coding, length = environ.get("HTTP_TRANSFER_ENCODING"), environ.get("CONTENT_LENGTH")
    if length is not None and not _LENGTH.fullmatch(length):
        raise bad_request("Content-Length is not a number without leading zeros")
    if coding is None:
        return
    if length is not None:
        raise bad_request("Content-Length and Transfer-Encoding exclude each other")
    if coding.lower() != "chunked":
        raise bad_request("The only Transfer-Encoding is chunked")
    if version != "1.1":
        raise bad_request("Transfer-Encoding needs HTTP/1.1")


def _require_host(host: str | None, named: str | None, version: str) -> None:
    if named is not None and host_name(named) is None:
        raise bad_request("Bad URI")
    if host is None:
        if version == "1.1":
            raise bad_request("The Host header is missing")
    elif host_name(host) is None:
        raise bad_request("The Host header is not host[:port]")
    # RFC 9112, 3.2.2: a proxy goes by a target that names a host, and Loom by the header.
    elif named is not None and named.lower() != host.lower():
        raise bad_request("The target and the Host header name two hosts")


class Framing:
    """Where a body ends, by its length; None: it comes in chunks. ``left_bytes`` are declared and still to come."""

    def __init__(self, length: int | None) -> None:
        self.is_whole = length == 0
        self.left_bytes, self._is_chunked = length or 0, length is None
        self._held = b"\r\n" if length is None else b""  # as behind a chunk before the first one

    def cut(self, data: bytes) -> tuple[bytes, bytes]:
        """A piece of the body, and what lies behind its end.

        Raises:
            Refused: 400 for what another server might read in another way: extensions, trailers, leading zeros.
        """
        pieces, data, self._held = list[bytes](), self._held + data, b""
        while data and not self.is_whole:
            if self.left_bytes:
                pieces.append(data[: self.left_bytes])
                data, self.left_bytes = data[self.left_bytes :], self.left_bytes - len(pieces[-1])
                self.is_whole = not self.left_bytes and not self._is_chunked
            elif (found := _CHUNK.match(data)) is not None:
                data, self.is_whole = data[found.end() :], found[1] is None
                self.left_bytes = int(found[1] or b"0", 16)
            elif _BEGUN.fullmatch(data):
                data, self._held = b"", data
            else:
                raise bad_request("The body is not in chunks, each behind its size alone, without leading zeros")
        return b"".join(pieces), data


class BodyStream(io.RawIOBase):
    """A body as its view reads it, in a thread; ``taken`` is called there once some of it was read."""

    def __init__(self, taken: Callable[[], object]) -> None:
        self._given_bytes = self._taken_bytes = 0  # one for each thread, as neither may count for the other
        self._taken = taken
        self._pieces: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._piece: bytes | None = b""

    def give(self, piece: bytes | None) -> None:
        """A further piece; empty: that was all; None: the client has gone before. For the loop's thread."""
        self._given_bytes += len(piece or b"")
        self._pieces.put(piece)

    @property
    def unread_bytes(self) -> int:
        """Bytes that were given and not read yet."""
        return self._given_bytes - self._taken_bytes

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Wait for a piece; ClientDisconnected if there will be none."""
        if not self._piece:
            self._piece = self._pieces.get()
            if not self._piece:
                self._pieces.put(self._piece)  # for whoever asks again
        if self._piece is None:
            raise ClientDisconnected
        count = min(len(buffer), len(self._piece))
        buffer[:count], self._piece = self._piece[:count], self._piece[count:]
        self._taken_bytes += count
        self._taken()
        return count
