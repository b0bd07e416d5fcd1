"""One server, kept reachable: opened when first asked, opened anew when it died, left alone when it only dies.

Calls come from many threads; sessions live in one, the loop's.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from loom_worker.backends.mcp.listing import ToolListing, listing
from loom_worker.backends.mcp.session import PING_S, Expired, Lost, McpSession, Transport, value
from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.json import Json

T = TypeVar("T")


class Loop:
    """Started when first used. The thread is a daemon: a process may end without closing it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it there.

        Raises:
            ToolFailed: after close (UNAVAILABLE).
        """
        with self._lock:
            if self._is_closed:
                work.close()
                raise ToolFailed("this worker is stopping", "UNAVAILABLE")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End what still runs there, and the thread; afterwards nothing can be submitted."""
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


LISTING_S = 15.0
"""For all pages of the list of tools."""
MAX_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long one waits for a server."""

    start_s: float = 60.0
    """From the start of a command to its greeting; some load their package from the network first."""
    discovery_s: float = 10.0
    """How long the first request for the tools of servers waits for all of them together."""
    idle_s: float = 300.0
    """A server that nobody asked for so long is ended; the next call starts it again."""


@dataclass(slots=True)
class RestartDelays:
    """When a server that died may be started again: at once after the first death, later and later after more."""

    deaths: int = 0
    """Since it last answered."""
    not_before_s: float = 0.0
    last: str = ""

    def died(self, why: str, now_s: float) -> None:
        """It died, or could not be reached."""
        self.last = why
        pause_s = min(2.0 ** (self.deaths - 1), MAX_PAUSE_S) if self.deaths else 0.0
        self.deaths += 1
        self.not_before_s = now_s + pause_s

    def check(self, now_s: float) -> None:
        """Pass if it may be tried.

        Raises:
            ToolFailed: not yet (UNAVAILABLE).
        """
        if now_s < self.not_before_s:
            raise ToolFailed(f"{self.last}; it is tried again in {self.not_before_s - now_s:.0f} s", "UNAVAILABLE")


class Connection:
    """All methods run in the thread of the loop."""

    def __init__(
        self, reach: Callable[[], Transport], found: Callable[[ToolListing], Awaitable[None]], limits: Limits
    ) -> None:
        """Take the parts; nothing is started yet.

        Args:
            reach: makes the transport for one more session; it may raise ToolFailed.
            found: called with every list of tools that was read.
        """
        self._reach = reach
        self._found = found
        self._limits = limits
        self._session: McpSession | None = None
        self._opening: asyncio.Task[McpSession] | None = None
        self._delays = RestartDelays()
        self._works: set[asyncio.Task[None]] = set()
        self._examining: asyncio.Task[None] | None = None
        self._used_s = 0.0
        self._is_closed = False

    async def call(self, tool: str, arguments: Json, timeout_s: float) -> object:
        """Call a tool; returns text or a JSON value.

        Raises:
            ToolFailed: the tool failed; UNAVAILABLE: the server did.
        """
        session: McpSession | None = None
        try:
            async with asyncio.timeout(timeout_s):
                session = await self._open_session()
                self._used_s = time.monotonic()
                result = await self._asked(session, lambda one: one.call(tool, arguments))
        except TimeoutError as error:
            if session is None:
                raise ToolFailed(f"it could not be started or reached within {timeout_s:g} s", "UNAVAILABLE") from error
            self._doubt(self._session or session)
            raise ToolFailed(f"it did not answer within {timeout_s:g} s", "UNAVAILABLE") from error
        except Lost as lost:
            raise ToolFailed(str(lost), "UNAVAILABLE") from lost
        finally:
            self._used_s = time.monotonic()
        self._delays.deaths = 0
        return value(result)

    async def refresh(self) -> None:
        """Read the list of tools and tell ``found``.

        Raises:
            ToolFailed: it cannot be read now.
        """
        try:
            await self._asked(await self._open_session(), self._list)
        except Lost as lost:
            raise ToolFailed(str(lost), "UNAVAILABLE") from lost

    async def close(self) -> None:
        """End the server."""
        self._is_closed = True
        works = {*self._works, *({self._opening} if self._opening else ())}
        for work in works:
            work.cancel()
        if works:
            await asyncio.wait(works)
        if self._session is not None:
            await self._session.close()

    async def _asked(self, session: McpSession, ask: Callable[[McpSession], Awaitable[T]]) -> T:
        """Ask, in a new session if this one is refused; calls of others that are under way in it are not disturbed."""
        with contextlib.suppress(Expired):
            return await ask(session)
        if self._session is session:
            self._session = None
            self._soon(session.retire())
        try:
            return await ask(await self._open_session())
        except Expired as again:
            raise again.args[0] from again

    async def _open_session(self) -> McpSession:
        if self._examining is not None and not self._examining.done():
            await asyncio.shield(self._examining)
        if self._session is not None and self._session.is_open:
            return self._session
        if self._opening is None:
            self._delays.check(time.monotonic())
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    async def _open(self) -> McpSession:
        session = McpSession(self._reach(), changed=self._changed)
        try:
            await session.open(self._limits.start_s)
        except asyncio.CancelledError:
            await session.close()
            raise
        self._session, self._used_s = session, time.monotonic()
        self._soon(self._watch(session))
        self._soon(self._relist(session))
        return session

    def _opened(self, task: asyncio.Task[McpSession]) -> None:
        self._opening = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._delays.died(str(error), time.monotonic())

    async def _watch(self, session: McpSession) -> None:
        """Notice its end, or end it when nobody has used it for long."""
        while session.is_open:
            left_s = self._used_s + self._limits.idle_s - time.monotonic()
            if left_s <= 0 and not session.under_way:
                await session.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(left_s, 0.1)):
                    await session.ended()
        await session.ended()
        if session.is_wanted:
            self._delays.died(session.exit_reason, time.monotonic())

    async def _relist(self, session: McpSession) -> None:
        with contextlib.suppress(ToolFailed, Lost):  # the next use says so
            await self._list(session)

    async def _list(self, session: McpSession) -> None:
        try:
            async with asyncio.timeout(LISTING_S):
                raw = await session.tools()
        except TimeoutError as error:
            self._doubt(session)
            raise ToolFailed(f"it did not list its tools within {LISTING_S:g} s", "UNAVAILABLE") from error
        await self._found(listing(raw))

    def _changed(self) -> None:
        if self._session is not None:
            self._soon(self._relist(self._session))

    def _doubt(self, session: McpSession) -> None:
        """Ask a server that let a call time out whether it is there at all; new calls wait for what comes of it."""
        if self._examining is None or self._examining.done():
            self._examining = self._soon(self._examine(session))

    async def _examine(self, session: McpSession) -> None:
        if session.is_open and not await session.answers():
            session.kill(f"was ended, since it answered neither a call nor a ping within {PING_S:g} s")
            await session.ended()

    def _soon(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        if self._is_closed:
            task.cancel()
        return task
