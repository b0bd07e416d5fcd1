"""What a server prints outside of the protocol, in Loom's log: with its name, secrets masked, and limited."""

import asyncio
import logging
import time
from collections.abc import Sequence

from loom_worker.backends.mcp.schema import plain

MAX_LINES = 50
"""Logged in any ten seconds; more are left out."""
_WINDOW_S = 10.0
MAX_LINE_CHARS = 300
MOST_AT_ONCE = 2000
"""Messages that answer nothing: a server that sends more only keeps us busy."""
MORE_PER_S = 100
"""So many are forgotten each second: far fewer than a busy machine reads, or it would never notice a flood."""

log = logging.getLogger(__name__)


class Said:
    """The log of one server."""

    def __init__(self, name: str, secrets: Sequence[str] = ()) -> None:
        self.last = ""
        """The latest line of its standard error."""
        self._name = name
        self._secrets = secrets
        self._window_ends_s = 0.0
        self._no_strays_before_s = 0.0
        self._lines = 0

    async def listen(self, err: asyncio.StreamReader) -> None:
        """Log its standard error until that is closed."""
        rest = b""
        while piece := await err.read(16 * 1024):
            *lines, rest = (rest[-16 * 1024 :] + piece).split(b"\n")
            for line in lines:
                self._log_line(line)
            await asyncio.sleep(0)
        self._log_line(rest)

    def stray(self, line: bytes) -> None:
        """Log a line of its standard output that is no message; one in ten seconds will do."""
        if (now_s := time.monotonic()) >= self._no_strays_before_s:
            self._no_strays_before_s = now_s + _WINDOW_S
            self._tell(line, logging.WARNING, "MCP server %s wrote on its standard output what is no message: %s")

    def masked(self, text: str) -> str:
        """The text without the server's secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _log_line(self, line: bytes) -> None:
        if text := self._tell(line, logging.INFO, "MCP server %s: %s"):
            self.last = text

    def _tell(self, line: bytes, level: int, form: str) -> str:
        text = plain(self.masked(line[: 4 * MAX_LINE_CHARS].decode("utf-8", "replace")), MAX_LINE_CHARS)
        if not text:
            return text
        now_s = time.monotonic()
        if now_s > self._window_ends_s:
            self._window_ends_s, self._lines = now_s + _WINDOW_S, 0
        self._lines += 1
        if self._lines <= MAX_LINES:
            log.log(level, form, self._name, text)
        elif self._lines == MAX_LINES + 1:
            log.warning("MCP server %s says too much: its further lines are left out for a while", self._name)
        return text


class Flood:
    """Counts what answers nothing."""

    def __init__(self) -> None:
        self._number = 0.0
        self._counted_s = time.monotonic()

    def count(self) -> None:
        """One more.

        Raises:
            ValueError: too many, too fast.
        """
        now_s = time.monotonic()
        self._number = max(0.0, self._number - (now_s - self._counted_s) * MORE_PER_S) + 1
        self._counted_s = now_s
        if self._number > MOST_AT_ONCE:
            raise ValueError(f"more than {MOST_AT_ONCE} messages that answer nothing, over {MORE_PER_S} a second")
