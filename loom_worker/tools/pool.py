"""The child processes in which a worker runs tools: each takes one call at a time and can be killed in its midst."""

import threading
import time
from collections.abc import Mapping, Sequence

from loom_worker.environ import NAMED_PREFIX, SECRET
from loom_worker.errors import Interrupted
from loom_worker.tools.child import Child
from loom_worker.tools.order import Order
from loom_worker.tools.outcome import BUSY, DIED, NO_PROCESS, failed, timed_out
from loom_worker.tools.pipes import Dead, Late
from loom_worker.values.json import Json
from loom_worker.values.tools import Caller, Outcome, Tool

IDLE_S = 60.0
"""A child that had nothing to do for so long is ended; the one that was used last is kept."""
WITHHELD = SECRET | {"LOOM_DATABASE_URL", "LOOM_REDIS_URL"}
"""Variables that no tool has any business with."""


class _Full(Exception):
    """Every child is busy."""


class Pool:
    """All children of a worker, whichever of its threads uses them."""

    def __init__(
        self, command: Sequence[str], *, most: int, environ: Mapping[str, str], idle_s: float = IDLE_S
    ) -> None:
        """Start nothing yet.

        Args:
            command: of a child, see ``loom_worker.workshop.command``.
            most: children at a time.
            environ: theirs; what is secret to Loom is taken out.
        """
        self._command, self._most, self._idle_s = tuple(command), most, idle_s
        self._environ = {name: value for name, value in environ.items() if not _is_withheld(name)}
        self._changed = threading.Condition()
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._starting = 0
        self._closed = threading.Event()
        self._ender: threading.Thread | None = None

    def run(self, tool: Tool, arguments: Json, caller: Caller, *, timeout_s: float, max_bytes: int) -> Outcome:
        """Run a tool by its origin; never raises for anything the tool does, and nothing of it runs on afterwards.

        Takes at most twice timeout_s (first for a free child) and BUILD_S of ``order``.

        Args:
            timeout_s: for the tool itself, once its code is loaded; then its process is killed.
            max_bytes: of what it gives; more is cut.

        Raises:
            Interrupted: the pool was closed meanwhile.
        """
        order = Order(tool, arguments, caller, timeout_s, max_bytes)
        try:
            child = self._take(order.key, timeout_s)
        except _Full:
            return Outcome("failed", BUSY, code="UNAVAILABLE")
        except OSError as error:
            return Outcome("failed", NO_PROCESS, code="UNAVAILABLE", detail=str(error))
        try:
            return self._done(order, child)
        except Late:
            return timed_out(timeout_s)
        except Dead as error:
            if self._closed.is_set():
                raise Interrupted("The worker stops.") from error
            return failed(DIED, detail=f"{error}; its exit status is {child.status}", is_fault=True)

    def close(self) -> None:
        """Kill all children, also those at work."""
        with self._changed:
            self._closed.set()
            idle, self._idle = self._idle, []
            for child in self._busy:
                child.shoot()
            self._changed.notify_all()
        for child in idle:
            child.end()

    def _done(self, order: Order, child: Child) -> Outcome:
        is_usable = False
        try:
            outcome = order.done_by(child)
            is_usable = True
            return outcome
        finally:  # also for an exception that is none of the tool's: no child is left at work
            self._give_back(child, is_usable=is_usable)

    def _take(self, key: str, wait_s: float) -> Child:
        """A child of one's own: one that is idle, or a new one, or the next that is free.

        Raises:
            _Full: none was free in time.
            OSError: none could be started.
        """
        until_s = time.monotonic() + wait_s
        with self._changed:
            while not self._closed.is_set():
                if (spare := self._spare(key)) is not None:
                    self._busy.add(spare)
                    return spare
                if len(self._busy) + self._starting < self._most:
                    self._starting += 1
                    break
                if (left_s := until_s - time.monotonic()) <= 0:
                    raise _Full
                self._changed.wait(left_s)
            else:
                raise Interrupted("The worker stops.")
        return self._started()

    def _spare(self, key: str) -> Child | None:
        """An idle child, best the one used last of those that know the origin; the dead are buried on the way."""
        while self._idle:
            child = ([each for each in self._idle if key in each.knows] or self._idle)[-1]
            self._idle.remove(child)
            if not child.has_ended:
                return child
            child.end()
        return None

    def _started(self) -> Child:
        child = None
        try:
            child = Child(self._command, self._environ)
            return child
        finally:
            with self._changed:
                self._starting -= 1
                if child is not None:
                    self._busy.add(child)
                if child is not None and self._closed.is_set():
                    child.shoot()
                self._changed.notify()

    def _give_back(self, child: Child, *, is_usable: bool) -> None:
        with self._changed:
            self._busy.discard(child)
            is_kept = is_usable and not self._closed.is_set()
            if is_kept:
                child.idle_since_s = time.monotonic()
                self._idle.append(child)
                self._watch_idle()
        if not is_kept:  # out of the lock: a process with much memory takes a while to go
            child.end()
        with self._changed:
            self._changed.notify()

    def _watch_idle(self) -> None:
        if self._ender is None:
            self._ender = threading.Thread(target=self._end_idle, name="idle tools", daemon=True)
            self._ender.start()

    def _end_idle(self) -> None:
        while not self._closed.wait(self._idle_s / 2):
            with self._changed:
                before_s = time.monotonic() - self._idle_s
                tired = [child for child in self._idle[:-1] if child.idle_since_s < before_s]
                self._idle = [child for child in self._idle if child not in tired]
            for child in tired:
                child.end()


def _is_withheld(name: str) -> bool:
    return name in WITHHELD or name.startswith(NAMED_PREFIX)
