"""What is known of one server in this process: its tools, and why they may be missing."""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from loom_worker.backends.mcp.listing import ToolListing
from loom_worker.core.errors import LoomError, ToolFailed

LOOK_EVERY_S = 5.0
"""How soon a list of tools that another process read is noticed."""

Remember = Callable[[str, str], None]
"""Keep a text under a key for a day or so, for all processes; may raise LoomError."""
Recall = Callable[[str], str | None]
"""The text kept under a key, None if there is none (any more); may raise LoomError."""

log = logging.getLogger(__name__)


class Known:
    """One server; any thread may ask."""

    def __init__(
        self,
        key: str,
        name: str,
        *,
        remember: Remember,
        recall: Recall,
        read: Callable[[], Future[None]],
        look_every_s: float = LOOK_EVERY_S,
    ):
        """Args: read: begins to read the list of tools; ``found`` is called before its future is done."""
        self._key = key
        self._name = name
        self._remember = remember
        self._recall = recall
        self._read = read
        self._look_every_s = look_every_s
        self._lock = threading.Lock()
        self._listing: ToolListing | None = None
        self._digest: tuple[ToolListing | None, str | None] = None, None
        self._reading: Future[None] | None = None
        self._looked_s = float("-inf")
        self.problem = ""
        """Why the list could not be read, last time it was tried."""

    @property
    def listing(self) -> ToolListing | None:
        """The tools, None while nobody has read them."""
        return self._listing

    def look(self) -> Future[None] | None:
        """Look what all processes know of it, now and then; returns the reading that is under way, if any.

        What is not remembered (any more) is read anew; until then what was known before holds.
        """
        with self._lock:
            if time.monotonic() - self._looked_s >= self._look_every_s:
                self._looked_s = time.monotonic()
                recalled = self._recalled()
                if recalled is not None:
                    self._listing = recalled
                else:
                    self._begin()
            return self._reading

    def digest(self) -> str | None:
        """Of the list in use; None while there is none."""
        listing, (known, digest) = self._listing, self._digest
        if listing is not known:
            text = json.dumps(listing.as_json()) if listing else ""
            digest = hashlib.sha256(text.encode()).hexdigest() if listing else None
            self._digest = listing, digest
        return digest

    def renew(self) -> None:
        """Take up what all processes know of it now; the server is not asked."""
        with self._lock:
            recalled = self._recalled()
            if recalled is not None:
                self._listing = recalled

    def found(self, listing: ToolListing) -> None:
        """Keep what was read, here and for all."""
        if listing != self._listing:
            for problem in listing.problems:
                log.warning("MCP server %s: %s", self._name, problem)
        self._listing = listing
        try:
            self._remember(self._key, json.dumps(listing.as_json()))
        except LoomError as error:
            log.warning("the tools of MCP server %s could not be remembered: %s", self._name, error)

    def _begin(self) -> None:
        if self._reading is not None:
            return
        ended = self._reading = Future[None]()
        try:
            self._read().add_done_callback(partial(self._ended, ended))
        except ToolFailed as error:  # this process is stopping
            self._reading, self.problem = None, str(error)

    def _ended(self, ended: Future[None], reading: Future[None]) -> None:
        error = None if reading.cancelled() else reading.exception()
        problem = str(error) if error else ""
        if error is not None and not isinstance(error, ToolFailed):
            log.error("reading the tools of MCP server %s failed", self._name, exc_info=error)
        elif problem and problem != self.problem:
            log.warning("MCP server %s: its tools cannot be read: %s", self._name, problem)
        self.problem, self._reading = problem, None
        ended.set_result(None)

    def _recalled(self) -> ToolListing | None:
        try:
            text = self._recall(self._key)
            return None if text is None else ToolListing.from_json(json.loads(text))
        except LoomError as error:
            log.warning("the tools of MCP server %s could not be recalled: %s", self._name, error)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("what was remembered of MCP server %s is not readable: %r", self._name, error)
        return None
