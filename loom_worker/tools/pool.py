"""The child processes in which a worker runs tools: each runs one call at a time and can be killed during it.

A child leads a process group of its own, so killing the group also ends whatever a tool has started. It holds the read
end of a pipe that nobody writes to; when the worker dies, in whatever way, that pipe closes, and the kernel kills the
group (``loom_worker.tools.child_main``). The messages between the two are JSON behind their length.
"""

import contextlib
import contextvars
import json
import logging
import os
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import IO, Any

from loom_worker.core.errors import Interrupted
from loom_worker.core.text import one_line
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Outcome, Tool
from loom_worker.core.values.traces import Interval
from loom_worker.tools.outcome import BUSY, DIED, NO_PROCESS, failed, timed_out

log = logging.getLogger(__name__)

REAP_S = 5.0
"""For a killed process to be gone; one that waits for a dead disk is left to the system."""
HEAD_BYTES = 4
"""The length of a message, before it."""
MOST_BYTES = 2**32 - 1
"""Bytes of a message."""
LINE_CHARS = 300
MAX_LINES = 100
"""Logged of one call; the rest is left out."""
_READ_BYTES = 1 << 20
_LINE_BYTES = 8 * 1024
"""A longer line counts as several."""


def packed(message: Json) -> bytes:
    """A message as it goes through a pipe: JSON behind its length; lone surrogates survive."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return struct.pack(">I", len(body)) + body


def unpacked(read: Callable[[int], bytes], *, most_bytes: int = MOST_BYTES) -> Json | None:
    """The next message; None at the end of the pipe, even in the middle of a message.

    Args:
        read: returns exactly so many bytes, fewer only at the end.

    Raises:
        ValueError: it is longer than most_bytes, or not a JSON object.
    """
    head = read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        return None
    (size_bytes,) = struct.unpack(">I", head)
    if size_bytes > most_bytes:
        raise ValueError(f"a message of {size_bytes:,} bytes, at most {most_bytes:,} are read")
    body = read(size_bytes)
    if len(body) < size_bytes:
        return None
    message = json.loads(body.decode("utf-8", "surrogatepass"))
    if not isinstance(message, dict):
        raise ValueError("a message must be a JSON object")
    return message


@dataclass(frozen=True, slots=True)
class Program:
    """What a child runs."""

    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str]
    """Its whole environment."""


class Child:
    """A running child; used by one thread at a time."""

    def __init__(self, program: Program) -> None:
        """Start it; its command's last argument is the number of the pipe that closes when the worker dies.

        Raises:
            OSError: the system has no room for another process.
        """
        read_end, self._life = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*program.command, str(read_end)],
                env=dict(program.environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(read_end,),
                start_new_session=True,
                bufsize=0,
            )
        except BaseException:
            os.close(self._life)
            raise
        finally:
            os.close(read_end)
        self.program = program
        self.pid = self._process.pid
        ends = (self._process.stdin, self._process.stdout, self._process.stderr)
        into, out, err = (end for end in ends if end is not None)
        self._ends = [into, out]
        self._output = CapturedOutput(err)
        self._pipes = Pipes(into.fileno(), out.fileno(), self.pid)
        self.knows: set[str] = set()
        """Origins of the tools that it has built."""
        self.idle_since_s = 0.0
        self.status: int | None = None
        """Its exit status once it has ended, negative for a signal."""

    def ask(self, request: Json, timeout_s: float) -> None:
        """Send a request."""
        self._output.begins(request["tool"])
        self._pipes.write(packed(request), time.monotonic() + timeout_s)

    def answer(self, timeout_s: float, most_bytes: int) -> Json:
        """The next message.

        Raises:
            Late: there was none in time.
            Dead: the child ended, or sent something other than a message of at most so many bytes.
        """
        read = partial(self._pipes.read, deadline_s=time.monotonic() + timeout_s)
        try:
            message = unpacked(read, most_bytes=most_bytes)
        except ValueError as error:
            raise Dead(str(error)) from error
        if message is None:
            raise Dead("it ended")
        return message

    @property
    def has_ended(self) -> bool:
        """True once it is dead, as far as the system knows."""
        return self._pipes.has_ended()

    def shoot(self) -> None:
        """Send SIGKILL to its whole group; only before ``end``: until then no other process can get that number."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it and everything it started, and release its resources."""
        self.shoot()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if self._pipes.has_ended(REAP_S) else REAP_S)
        self.status = self._process.returncode
        self._pipes.close()
        for end in self._ends:
            end.close()
        os.close(self._life)


class Late(Exception):
    """The deadline passed first."""


class Dead(Exception):
    """The child ended, or sent something that is not a message."""


class Pipes:
    """The two pipes of a child; used by one thread at a time."""

    def __init__(self, into: int, out: int, pid: int) -> None:
        self._into, self._out = into, out
        for descriptor in (into, out):
            os.set_blocking(descriptor, False)
        # Processes that a tool forked hold the pipes open too, so their end would show a death too late.
        self._process = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None

    def close(self) -> None:
        """Close what was opened here; the pipes belong to others."""
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def has_ended(self, wait_s: float = 0.0) -> bool:
        """True once the child is dead, as far as the system knows."""
        if self._process is None:
            return False
        return bool(_ready((self._process, select.POLLIN), timeout_s=wait_s))

    def write(self, raw: bytes, deadline_s: float) -> None:
        """Write all of it.

        Args:
            deadline_s: of ``time.monotonic``.

        Raises:
            Late: the child does not read.
            Dead: there is no child.
        """
        left = memoryview(raw)
        while left:
            try:
                left = left[os.write(self._into, left) :]
            except BlockingIOError:
                self._wait(self._into, select.POLLOUT, deadline_s)
            except BrokenPipeError as error:
                raise Dead("it reads no more") from error

    def read(self, size_bytes: int, deadline_s: float) -> bytes:
        """Read exactly so many bytes.

        Raises:
            Late: they did not come in time.
            Dead: they will not come any more.
        """
        found = bytearray()
        has_ended = False
        while len(found) < size_bytes:
            try:
                piece = os.read(self._out, min(size_bytes - len(found), _READ_BYTES))
            except BlockingIOError:
                if has_ended:  # and everything it had written is read
                    raise Dead("it ended") from None
                has_ended = self._wait(self._out, select.POLLIN, deadline_s)
                continue
            if not piece:
                raise Dead("it ended")
            found += piece
        return bytes(found)

    def _wait(self, descriptor: int, event: int, deadline_s: float) -> bool:
        """Wait until there is something to do; True if the child has ended."""
        watched = [(descriptor, event)]
        if self._process is not None:
            watched.append((self._process, select.POLLIN))
        left_s = deadline_s - time.monotonic()
        ready = _ready(*watched, timeout_s=left_s) if left_s > 0 else set()
        if not ready:
            raise Late
        return self._process in ready


def _ready(*watched: tuple[int, int], timeout_s: float) -> set[int | None]:
    poll = select.poll()
    for descriptor, event in watched:
        poll.register(descriptor, event)
    return {descriptor for descriptor, _ in poll.poll(max(0, timeout_s) * 1000)}


class CapturedOutput:
    """Logs a child's standard error for as long as anybody holds it open; unread, it would block a tool that prints."""

    def __init__(self, err: IO[bytes]) -> None:
        """Start reading; the file is closed when it has ended."""
        self._err = err
        self._tool, self._lines = "process", 0
        self._caller = contextvars.copy_context()
        threading.Thread(target=self._listen, name="what tools print", daemon=True).start()

    def begins(self, tool: str) -> None:
        """Log what is read from now on as this tool's."""
        self._tool, self._lines = tool, 0
        self._caller = contextvars.copy_context()  # of the call's thread: what a log line is about

    def _listen(self) -> None:
        with self._err, open(self._err.fileno(), "rb", closefd=False) as err:
            while raw := err.readline(_LINE_BYTES):
                text = one_line(raw.decode("utf-8", "replace"), LINE_CHARS)
                self._lines += bool(text)
                if text and self._lines <= MAX_LINES:
                    self._caller.run(log.info, "tool %s: %s", self._tool, text)
                elif text and self._lines == MAX_LINES + 1:
                    text = "tool %s prints too much: the rest of this call's output is left out"
                    self._caller.run(log.warning, text, self._tool)


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
            return Outcome(**{**message, "guard": (), "media": (), "process": process})
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
            child = Child(program)
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
