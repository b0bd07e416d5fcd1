"""An asyncio loop in a thread of its own: calls come from many threads, sessions live in one."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from loom_worker.core.errors import ToolFailed

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
