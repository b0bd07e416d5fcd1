"""A streamed HTTP body under a total deadline, given up at once when nobody wants it any more.

An HTTP client's timeout is per read, so a slow drip outlives it, and nothing bounds the look-up of a host name. The
blocking part therefore runs in a thread of its own and the caller waits for that thread: no fault of the server's,
in no phase of a call, holds the caller longer than its deadline.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import Protocol

from loom_worker.core.errors import Interrupted
from loom_worker.core.values.chat import UNWATCHED, Watch

POLL_S = 0.25
"""How often the caller looks whether it must stop."""
MAX_BYTES = 64 * 1024 * 1024
"""Longest body that is read; a million tokens are a tenth of it."""
MAX_WAITING = 16
"""Chunks (64 KiB each at most) that are read ahead: a server that is faster than we are fills no memory with them."""


class Body(Protocol):
    """An open response."""

    def chunks(self) -> Iterator[bytes]:
        """The body, as it comes in."""

    def close(self) -> None:
        """Give the connection back, or drop it if the body was not read to its end."""

    def hang_up(self) -> None:
        """Wake a thread that waits for the next chunk; called from another thread."""


class TooLate(Exception):
    """The deadline passed."""


class TooLong(Exception):
    """The body has more bytes than may be read."""


class WatchedBody:
    """The chunks of one response. Use it in one thread, iterate once, and close it."""

    def __init__(
        self,
        open_body: Callable[[], Body],
        *,
        deadline: float,
        is_stopping: Callable[[], bool],
        max_bytes: int = MAX_BYTES,
        watch: Watch = UNWATCHED,
    ) -> None:
        """Begin to open the response.

        Args:
            open_body: sends the request; may block as long as it likes.
            deadline: ``time.monotonic()`` at which the whole must be over.
            is_stopping: asked every POLL_S and with each chunk.
            watch: hears of each chunk, and of each POLL_S without one.
        """
        self._deadline = deadline
        self._is_stopping = is_stopping
        self._max_bytes = max_bytes
        self._watch = watch
        self._chunks: Queue[bytes | BaseException | None] = Queue(MAX_WAITING)
        self._is_abandoned = threading.Event()
        self._lock = threading.Lock()
        self._body: Body | None = None
        threading.Thread(target=self._read, args=(open_body,), name="loom-llm-read", daemon=True).start()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the chunks.

        Raises:
            TooLate, TooLong: see above.
            Interrupted: is_stopping() said so.
            Exception: whatever opening or reading raised.
        """
        size_bytes = 0
        while (chunk := self._next()) is not None:
            size_bytes += len(chunk)
            if size_bytes > self._max_bytes:
                raise TooLong(f"more than {self._max_bytes} bytes")
            yield chunk

    def finish_by(self, deadline: float) -> None:
        """Read and drop the rest, so that the connection can serve the next call; how the rest fails is no matter."""
        with suppress(Empty):
            while isinstance(self._chunks.get(timeout=max(0.0, deadline - time.monotonic())), bytes):
                continue

    def close(self) -> None:
        """Give up what is still running; the thread ends by itself, at the latest with its client's own timeout."""
        self._is_abandoned.set()
        with self._lock:
            if self._body is not None:
                self._body.hang_up()

    def _next(self) -> bytes | None:
        while True:
            if self._is_stopping():
                raise Interrupted("The call was given up: this process stops, or nobody wants the reply any more.")
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise TooLate("deadline")
            try:
                got = self._chunks.get(timeout=min(left_s, POLL_S))
            except Empty:
                self._watch.silent()
                continue
            if isinstance(got, BaseException):
                raise got
            self._watch.heard()
            return got

    def _read(self, open_body: Callable[[], Body]) -> None:
        try:
            self._pass_on(open_body())
            self._put(None)
        except BaseException as error:  # top of a thread: the caller raises it
            self._put(error)

    def _put(self, got: bytes | BaseException | None) -> None:
        """Hand it to the caller, who may be slow or gone."""
        while not self._is_abandoned.is_set():
            try:
                self._chunks.put(got, timeout=POLL_S)
            except Full:
                continue
            return

    def _pass_on(self, body: Body) -> None:
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
