"""Signals as something to wait for: the loop sleeps until one comes or its time is over."""

import os
import selectors
import signal
import socket
from types import FrameType, TracebackType
from typing import Self

HEARD = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalPipe:
    """Within it, the signals of HEARD do nothing but end ``wait``; only the main thread can hold it."""

    def __enter__(self) -> Self:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._reader, selectors.EVENT_READ)
        self._old_handlers = {number: signal.signal(number, _note) for number in HEARD}
        # A full socket loses a byte but not the wake-up: the loop looks at every child at each turn.
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._old_fd)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._selector.close()
        self._reader.close()
        self._writer.close()

    def wait(self, timeout_s: float) -> list[int]:
        """Sleep at most ``timeout_s``; the numbers of the signals that came, oldest first."""
        if not self._selector.select(max(timeout_s, 0.0)):
            return []
        return list(os.read(self._reader.fileno(), 4096))


def _note(_number: int, _frame: FrameType | None) -> None:
    """Let the wake-up descriptor speak; without a handler the signal would be ignored or deadly."""
