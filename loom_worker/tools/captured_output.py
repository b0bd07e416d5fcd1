"""What a tool prints in its child process, in the worker's log: with the tool's name, cleaned, and not without end."""

import logging
import threading
from typing import IO

from loom_worker.core.text import one_line

LINE_CHARS = 300
MAX_LINES = 100
"""Logged of one call; more are left out."""
_READ_BYTES = 8 * 1024
"""Of a line; what follows counts as another."""

log = logging.getLogger(__name__)


class Heard:
    """Reads a child's standard error for as long as anybody has it open: else a tool that prints would stand still."""

    def __init__(self, err: IO[bytes]) -> None:
        """Begin to read; the file is closed when it has ended."""
        self._err = err
        self._tool, self._lines = "process", 0
        threading.Thread(target=self._listen, name="what tools print", daemon=True).start()

    def begins(self, tool: str) -> None:
        """What is read from now on is of this tool's call."""
        self._tool, self._lines = tool, 0

    def _listen(self) -> None:
        with self._err, open(self._err.fileno(), "rb", closefd=False) as err:
            while raw := err.readline(_READ_BYTES):
                self._hear(one_line(raw.decode("utf-8", "replace"), LINE_CHARS))

    def _hear(self, text: str) -> None:
        self._lines += bool(text)
        if text and self._lines <= MAX_LINES:
            log.info("tool %s: %s", self._tool, text)
        elif text and self._lines == MAX_LINES + 1:
            log.warning("tool %s prints too much: the further lines of this call are left out", self._tool)
