"""Reading and writing a child's pipes with a deadline, and noticing its death at once."""

import os
import select
import time

_READ_BYTES = 1 << 20


class Late(Exception):
    """The deadline passed first."""


class Dead(Exception):
    """The child ended, or said what is no message."""


class Pipes:
    """The two pipes of a child; used by one thread at a time."""

    def __init__(self, into: int, out: int, pid: int) -> None:
        self._into, self._out = into, out
        for descriptor in (into, out):
            os.set_blocking(descriptor, False)
        # What a tool has forked holds the pipes open too, so their end alone would tell of a death too late.
        self._process = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None

    def close(self) -> None:
        """Let go of what was opened here; the pipes belong to others."""
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def has_ended(self, wait_s: float = 0.0) -> bool:
        """True once the child is dead, as far as the system tells."""
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
                if has_ended:  # and what it had written before is read
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
