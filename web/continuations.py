"""Until all that waits is a coroutine: the older way of a request to go on without its thread."""

import asyncio
from typing import Any, Protocol

from web.detached import Exchange, FinalAnswer, GoesOn


class Continuation(Protocol):
    """How a request goes on that has left its thread."""

    holds_answer: bool

    def begin(self, task: Any) -> None: ...
    def conclude(self) -> FinalAnswer | bool: ...
    def leave(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class HttpTask:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self._loop = exchange, asyncio.get_running_loop()
        self.over = asyncio.Event()

    @property
    def unsent_bytes(self) -> int:
        return self._exchange.unsent_bytes

    def send(self, data: bytes) -> None:
        self._loop.call_soon_threadsafe(self._exchange.send, data)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self.over.set)


def coroutine_of(continuation: Continuation) -> GoesOn:
    async def goes_on(exchange: Exchange) -> FinalAnswer | None:
        task = HttpTask(exchange)

        async def watch() -> None:
            await exchange.left()
            continuation.leave()

        async def resume() -> None:
            while True:
                await asyncio.sleep(0.02)
                continuation.resume()

        helpers = [asyncio.ensure_future(watch()), asyncio.ensure_future(resume())]
        try:
            while True:
                continuation.begin(task)
                await task.over.wait()
                task.over.clear()
                answer = await exchange.in_thread(continuation.conclude)
                if answer is not False:
                    return answer if isinstance(answer, FinalAnswer) else None
        finally:
            for each in helpers:
                each.cancel()
            continuation.close()

    return goes_on
