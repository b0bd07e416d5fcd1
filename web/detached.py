"""Requests and their answers: a view runs in a thread, which it can leave; then its request goes on as a coroutine."""

import asyncio
import concurrent.futures
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from flask import request
from werkzeug.http import HTTP_STATUS_CODES

from web.request_threads import ENDS_BEHIND_S

T = TypeVar("T")
log = logging.getLogger("loom.web")

AHEAD_BYTES = 64 * 1024
"""A client that has not taken so many bytes of its answer is sent nothing for now."""
_DETACH = "loom.detach"
"""The key of WSGI's environ under which a view finds how to leave its thread; other servers than ours have none."""


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """An answer that was not known when the view returned; the headers that the view gave it are kept."""

    status: int
    headers: Mapping[str, str]
    body: bytes


GoesOn = Callable[["Exchange"], Awaitable[FinalAnswer | None]]
"""How a request goes on; None: it was sent everything. It must return soon after the client has gone; if the server
stops, it is cancelled."""


def can_detach() -> bool:
    """True if the current request can go on without a thread."""
    return _DETACH in request.environ


def detach(goes_on: GoesOn, *, holds_answer: bool) -> None:
    """Let the current request go on without its thread once the view has returned.

    Args:
        holds_answer: what the view returned is not sent; its headers are, with the final answer.
    """
    request.environ[_DETACH](goes_on, holds_answer)


class Exchange:
    """A request that is served; ``serve`` is for a thread, everything else for the loop's."""

    def __init__(self, connection: Any, environ: dict[str, Any], *, is_last: bool) -> None:
        """Args: connection: the ``HttpConnection`` that makes it."""
        self.environ = environ | {_DETACH: self._detach}
        self.is_last = is_last  # the connection is closed behind the answer
        self._connection = connection
        self._goes_on: GoesOn | None = None
        self._holds_answer = self._is_chunked = self._has_begun = False
        self._has_no_body = environ["REQUEST_METHOD"] == "HEAD"
        self._status, self._headers = "", list[tuple[str, str]]()
        self._left = asyncio.Event()

    def serve(self) -> None:
        """Run the view, and hand its answer over, a short one as a whole."""
        hand_over = self._connection.threads.hand_over
        try:
            pieces = self._connection.wsgi_app(self.environ, self._start)
            try:
                data = self._answered(pieces)
            finally:
                getattr(pieces, "close", bool)()
            hand_over(lambda: self._take(data))
        except BaseException as error:  # the top of a request
            if not isinstance(error, ConnectionResetError):  # the client has gone
                log.exception("a request failed")
            hand_over(self._give_up)

    def send(self, data: bytes) -> None:
        """Send a piece of the answer, without blocking; nothing happens once the client has gone."""
        if data and not self._has_no_body:
            self._connection.write(self._framed(data))

    @property
    def unsent_bytes(self) -> int:
        return int(self._connection.unsent_bytes)

    async def taken(self) -> None:
        """Return once fewer than AHEAD_BYTES wait to be taken, or the client has gone."""
        await self._connection.flow.drain()

    async def until_left(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do it to its end, and return True; False once the client has gone: it is cancelled then.

        So it is once a client says that it will say no more; that one still gets its answer.
        """
        tasks = doing, _ = asyncio.ensure_future(work), asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
            return not self._left.is_set()
        finally:
            for each in tasks:
                each.cancel()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run what may block as views are run, in a thread, few at a time; new requests go first for a while."""
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(work())
                except BaseException as error:  # raised where it is waited for
                    done.set_exception(error)

        self._connection.threads.run(run, behind_s=ENDS_BEHIND_S)
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
        return self._send_ahead

    def _detach(self, goes_on: GoesOn, holds_answer: bool) -> None:  # as ``detach`` calls it
        self._goes_on, self._holds_answer = goes_on, holds_answer

    def _answered(self, pieces: Iterable[bytes]) -> bytes:
        """What the view returned, as far as it was not sent already."""
        if self._holds_answer:
            return b""
        kept, size = list[bytes](), 0
        for piece in pieces:
            if size >= AHEAD_BYTES:  # before the next piece only: who waits for the last one to be taken waits in vain
                self._send_ahead(b"".join(kept))
                kept, size = [], 0
            kept.append(piece)
            size += len(piece)
        return self._begin(None if self._goes_on else size) + self._framed(b"".join(kept))

    def _send_ahead(self, data: bytes) -> None:
        """Send a piece of a long answer, and wait until the client has taken enough of it."""
        sent = self._sent(self._begin(None) + self._framed(data))
        asyncio.run_coroutine_threadsafe(sent, self._connection.loop).result()

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
            running = self._connection.loop.create_task(self._go_on(self._goes_on))
            self._connection.tasks.add(running)
            running.add_done_callback(self._connection.tasks.discard)

    def _give_up(self) -> None:
        """Close the connection; how the request was to go on still begins, as it gives back what the view took."""
        self._connection.abort()
        if self._goes_on is not None:
            self._take(b"")

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
        self._connection.end(b"0\r\n\r\n" if self._is_chunked else b"", is_last=self.is_last)

    def _framed(self, data: bytes) -> bytes:
        if self._has_no_body:
            return b""
        return b"%x\r\n%b\r\n" % (len(data), data) if data and self._is_chunked else data

    def _begin(self, length: int | None) -> bytes:
        """The head if it was not sent already; None: the length is unknown."""
        if self._has_begun:
            return b""
        self._has_begun = True
        date = self._connection.server_state.default_headers
        headers = [*self._headers, *((name.decode().title(), value.decode()) for name, value in date)]
        if self._status.startswith(("1", "204", "304")):
            self._has_no_body = True
        elif not any(name.lower() == "content-length" for name, _ in headers):
            is_old = self.environ["SERVER_PROTOCOL"] == "HTTP/1.0"
            self._is_chunked = length is None and not is_old and not self._has_no_body
            self.is_last = self.is_last or length is None
            if length is not None:
                headers.append(("Content-Length", str(length)))
            elif not is_old:
                headers.append(("Transfer-Encoding", "chunked"))
        if self.is_last:
            headers.append(("Connection", "close"))
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        return f"HTTP/1.1 {self._status}\r\n{lines}\r\n".encode("latin-1")
