"""The child processes in which a worker runs tools: each runs one call at a time and can be killed during it."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from loom_worker.core.errors import Interrupted
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Outcome, Tool
from loom_worker.core.values.traces import Interval
from loom_worker.tools.child import Child, Dead, Late, Program
from loom_worker.tools.outcome import BUSY, DIED, NO_PROCESS, failed, timed_out

BUILD_S = 30.0
"""For a child to start and to load the code of a tool that is new to it, in addition to the tool's own time."""
_OVERHEAD_BYTES = 1 << 20


@dataclass(frozen=True)
class CallRequest:
    """A call of a tool that has an origin."""

    tool: Tool
    arguments: Json
    caller: Caller
    timeout_s: float
    max_bytes: int

    @cached_property
    def key(self) -> str:
        """The tool's origin, for comparison; it has a file's version instead of its text."""
        return json.dumps(self._origin(is_known=True), sort_keys=True)

    @property
    def is_of_backend(self) -> bool:
        """True for one of our tools that works on data; False for one whose code a user wrote."""
        return (self.tool.origin or {}).get("kind") != "python"

    def done_by(self, child: Child) -> Outcome:
        """Run it in a child.

        Raises:
            Late: it took longer than timeout_s, or its code longer than BUILD_S to load.
            Dead: the child ended meanwhile.
        """
        is_known = self.key in child.knows
        request = {
            "origin": self._origin(is_known=is_known),
            "tool": self.tool.spec.name,
            "arguments": self.arguments,
            "caller": asdict(self.caller),
            "max_bytes": self.max_bytes,
            "tells_start": not is_known,
        }
        began_us = now_us()
        child.ask(request, BUILD_S)
        message = self._answer(child, self.timeout_s if is_known else BUILD_S)
        if "status" not in message:
            child.knows.add(self.key)
            message = self._answer(child, self.timeout_s)
        try:
            # What guardrails decide is decided here, never by the code in a child; it may say only when it ran.
            process = {"pid": child.pid, "at": _within(Interval(began_us, now_us()), message.get("process")).as_json()}
            return Outcome(**{**message, "guard": (), "process": process})
        except TypeError as error:
            raise Dead(f"not an outcome: {error}") from error

    def _origin(self, *, is_known: bool) -> Json:
        """How the child builds the tool; once it has built it, it does not need the file's text again."""
        origin = self.tool.origin or {}
        return {name: value for name, value in origin.items() if not (is_known and name == "source")}

    def _answer(self, child: Child, timeout_s: float) -> Json:
        # Content and detail, each twice as long if every character is escaped.
        return child.answer(timeout_s, most_bytes=4 * self.max_bytes + _OVERHEAD_BYTES)


def _within(whole: Interval, told: Any) -> Interval:
    """When a child says that it ran a tool, if that can be; else the whole time until its answer."""
    at = Interval.of(told.get("at")) if isinstance(told, dict) else None
    return at if at and whole.began_us <= at.began_us <= at.ended_us <= whole.ended_us else whole


IDLE_S = 60.0
"""A child that was idle for so long is ended; the one used last is kept."""


class _Full(Exception):
    """Every child is busy."""


class Pool:
    """All children of a worker, whichever of its threads uses them.

    Users' tools and those of backends never share a child, because secrets of a backend, such as a database's
    password, stay in the memory of the process that used them.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        most: int,
        environ: Mapping[str, str],
        for_backends: Program | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        """Start nothing yet.

        Args:
            command: of a child, see ``loom_worker.tools.child_main.command``.
            most: children at a time.
            environ: their whole environment.
            for_backends: runs the tools of backends; None: the same command and environment.
        """
        self._most, self._idle_s = most, idle_s
        self._program = Program("users", tuple(command), environ)
        self._for_backends = for_backends or Program("backends", tuple(command), environ)
        self._changed = threading.Condition()
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._starting = 0
        self._closed = threading.Event()
        self._ender: threading.Thread | None = None

    def run(self, tool: Tool, arguments: Json, caller: Caller, *, timeout_s: float, max_bytes: int) -> Outcome:
        """Run a tool by its origin; never raises, whatever the tool does, and nothing of it keeps running.

        Takes at most twice timeout_s (first for a free child) and BUILD_S.

        Args:
            timeout_s: for the tool itself, once its code is loaded; then its process is killed.
            max_bytes: of its result; the rest is cut.

        Raises:
            Interrupted: the pool was closed meanwhile.
        """
        request = CallRequest(tool, arguments, caller, timeout_s, max_bytes)
        try:
            child = self._take(request.key, self._for_backends if request.is_of_backend else self._program, timeout_s)
        except _Full:
            return Outcome("failed", BUSY, code="UNAVAILABLE")
        except OSError as error:
            return Outcome("failed", NO_PROCESS, code="UNAVAILABLE", detail=str(error))
        try:
            return self._run_in(child, request)
        except Late:
            return timed_out(timeout_s)
        except Dead as error:
            if self._closed.is_set():
                raise Interrupted("The worker stops.") from error
            return failed(DIED, detail=f"{error}; its exit status is {child.status}", is_fault=True)

    def close(self) -> None:
        """Kill all children, including busy ones."""
        with self._changed:
            self._closed.set()
            idle, self._idle = self._idle, []
            for child in self._busy:
                child.shoot()
            self._changed.notify_all()
        for child in idle:
            child.end()

    def _run_in(self, child: Child, request: CallRequest) -> Outcome:
        is_usable = False
        try:
            outcome = request.done_by(child)
            is_usable = True
            return outcome
        finally:  # also after an exception that is not the tool's: no child is left running
            self._give_back(child, is_usable=is_usable)

    def _take(self, key: str, program: Program, wait_s: float) -> Child:
        """Take an idle child, or a new one, or the next to become free.

        Raises:
            _Full: none was free in time.
            OSError: none could be started.
        """
        until_s = time.monotonic() + wait_s
        with self._changed:
            while not self._closed.is_set():
                if (spare := self._spare(key, program)) is not None:
                    self._busy.add(spare)
                    return spare
                if len(self._busy) + self._starting < self._most:
                    self._starting += 1
                    # Idle children of the other program make room for the new one.
                    count = max(0, len(self._idle) + len(self._busy) + self._starting - self._most)
                    surplus, self._idle = self._idle[:count], self._idle[count:]
                    break
                if (left_s := until_s - time.monotonic()) <= 0:
                    raise _Full
                self._changed.wait(left_s)
            else:
                raise Interrupted("The worker stops.")
        for child in surplus:  # outside the lock: a process with much memory takes a while to end
            child.end()
        return self._started(program)

    def _spare(self, key: str, program: Program) -> Child | None:
        """An idle child, preferably the last used of those that know the origin; dead ones are removed on the way."""
        while alike := [each for each in self._idle if each.program is program]:
            child = ([each for each in alike if key in each.knows] or alike)[-1]
            self._idle.remove(child)
            if not child.has_ended:
                return child
            child.end()
        return None

    def _started(self, program: Program) -> Child:
        child = None
        try:
            child = Child.of(program)
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
                if self._ender is None:
                    self._ender = threading.Thread(target=self._end_idle, name="idle tools", daemon=True)
                    self._ender.start()
        if not is_kept:  # outside the lock: a process with much memory takes a while to end
            child.end()
        with self._changed:
            self._changed.notify()

    def _end_idle(self) -> None:
        while not self._closed.wait(self._idle_s / 2):
            with self._changed:
                before_s = time.monotonic() - self._idle_s
                tired = [child for child in self._idle[:-1] if child.idle_since_s < before_s]
                self._idle = [child for child in self._idle if child not in tired]
            for child in tired:
                child.end()
