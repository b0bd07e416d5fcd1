"""One request and its answer: its view runs in a thread, and may go on as a coroutine."""

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from werkzeug.http import HTTP_STATUS_CODES

from web.detached import AHEAD_BYTES, DETACH, FinalAnswer, GoesOn

if TYPE_CHECKING:
    from web.http_connection import HttpConnection

T = TypeVar("T")
log = logging.getLogger("loom.web")

_WITHOUT_BODY = ("1", "204", "304")


class HttpExchange:
    """A request that is served; ``serve`` is for a thread, everything else for the loop's."""

    def __init__(self, connection: "HttpConnection", environ: dict[str, Any], *, is_last: bool) -> None:
        self.environ = environ
        self.is_last = is_last
        """True if the connection is closed behind the answer."""
        self._connection = connection
        self._is_http_11 = environ["SERVER_PROTOCOL"] == "HTTP/1.1"
        self._goes_on: GoesOn | None = None
        self._holds_answer = self._is_chunked = self._has_begun = False
        self._has_no_body = environ["REQUEST_METHOD"] == "HEAD"
        self._status, self._headers = "", list[tuple[str, str]]()
        self._left = asyncio.Event()
        environ[DETACH] = self._detach

    def serve(self) -> None:
        """Run the view, and hand its answer over, a short one as a whole."""
        try:
            pieces = self._connection.wsgi_app(self.environ, self._start)
            try:
                data = self._answered(pieces)
            finally:
                getattr(pieces, "close", bool)()
            self._connection.hand_over(lambda: self._take(data))
        except ConnectionResetError:
            pass  # the client has gone, and with it the connection
        except BaseException:  # the top of a request
            log.exception("a request failed")
            self._connection.hand_over(self._connection.abort)

    def send(self, data: bytes) -> None:
        if data and not self._has_no_body:
            self._connection.write(self._framed(data))

    @property
    def unsent_bytes(self) -> int:
        return self._connection.unsent_bytes

    async def taken(self) -> None:
        await self._connection.flow.drain()

    async def left(self) -> None:
        await self._left.wait()

    async def in_thread(self, work: Callable[[], T]) -> T:
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # raised where it is waited for
                done.set_exception(error)

        self._connection.threads.run(run)
        return await asyncio.wrap_future(done)

    def leave(self) -> None:
        """The client has gone, or says no more."""
        self._left.set()

    def answer(self, final: FinalAnswer) -> None:
        """Send the head, which was not sent before, and the body."""
        given = {name.lower() for name in final.headers} | {"content-length"}
        self._headers = [each for each in self._headers if each[0].lower() not in given]
        self._headers += final.headers.items()
        self._status = f"{final.status} {HTTP_STATUS_CODES[final.status]}"
        self._connection.write(self._begin(len(final.body)) + self._framed(final.body))

    def _start(self, status: str, headers: list[tuple[str, str]], _: object = None) -> Callable[[bytes], object]:
        self._status, self._headers = status, headers
        return lambda data: self._send_ahead(self._begin(None) + self._framed(data))

    def _detach(self, goes_on: GoesOn, holds_answer: bool) -> None:  # as ``detach`` calls it
        self._goes_on, self._holds_answer = goes_on, holds_answer

    def _answered(self, pieces: Iterable[bytes]) -> bytes:
        """What the view returned, as far as it was not sent already."""
        if self._holds_answer:
            return b""
        kept, size = list[bytes](), 0
        for piece in pieces:
            kept.append(piece)
            size += len(piece)
            if size >= AHEAD_BYTES:
                self._send_ahead(self._begin(None) + self._framed(b"".join(kept)))
                kept, size = [], 0
        body = b"".join(kept)
        return self._begin(None if self._goes_on else len(body)) + self._framed(body)

    def _send_ahead(self, data: bytes) -> None:
        """Send a piece of a long answer, and wait until the client has taken enough of it."""
        asyncio.run_coroutine_threadsafe(self._sent(data), self._connection.loop).result()

    async def _sent(self, data: bytes) -> None:
        self._connection.write(data)
        await self.taken()
        if self._connection.transport.is_closing():
            raise ConnectionResetError

    def _take(self, data: bytes) -> None:
        self._connection.write(data)
        if self._goes_on is None:
            self._end()
        else:
            self._connection.keep(asyncio.ensure_future(self._go_on(self._goes_on)))

    async def _go_on(self, goes_on: GoesOn) -> None:
        try:
            answer = await goes_on(self)
            if answer is not None:
                self.answer(answer)
            self._end()
        except Exception:  # the top of a request
            log.exception("a request failed")
            self._connection.abort()

    def _end(self) -> None:
        self._connection.end(b"0\r\n\r\n" if self._is_chunked else b"")

    def _framed(self, data: bytes) -> bytes:
        if self._has_no_body:
            return b""
        return b"%x\r\n%b\r\n" % (len(data), data) if data and self._is_chunked else data

    def _begin(self, length: int | None) -> bytes:
        """The head if it was not sent already; None: the length is unknown."""
        if self._has_begun:
            return b""
        self._has_begun = True
        names = {name.lower() for name, _ in self._headers}
        headers = [*self._headers, *self._connection.own_headers]
        if self._status.startswith(_WITHOUT_BODY):
            self._has_no_body = True
        elif "content-length" not in names:
            if length is not None:
                headers.append(("Content-Length", str(length)))
            else:
                self.is_last = True
                self._is_chunked = self._is_http_11 and not self._has_no_body
                headers += [("Transfer-Encoding", "chunked")] if self._is_http_11 else []
        if self.is_last:
            headers.append(("Connection", "close"))
        elif not self._is_http_11:
            headers.append(("Connection", "Keep-Alive"))
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        return f"HTTP/1.1 {self._status}\r\n{lines}\r\n".encode("latin-1")
