"""Has files read by ``reader`` in a child process, which is killed and started anew when one of them is too much."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self, cast

import loom_worker
from loom_worker.backends.documents.extract import Passage, UnreadableDocument
from loom_worker.backends.documents.reader import KILLED_AFTER, Answer, ReadRequest
from loom_worker.core.isolation import process_env

_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from loom_worker.backends.documents.reader import main; main()"
"""The package's folder comes last, so no module next to it can replace one of the standard library."""

MAX_ANSWER_BYTES = 100_000_000
"""5 million characters, most of them escaped as JSON does (\\u20ac), and what stands around them."""
TOO_MUCH = "reading it takes too long or breaks the program that reads it"


class Reading:
    """A reader's process, from the first file to the end of the ``with``."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop()

    def read(self, fd: int, order: ReadRequest) -> Answer:
        """What is in an open file.

        Raises:
            Unreadable: it cannot be read; if its reader had to be killed or died, the text is TOO_MUCH.
        """
        orders = self._socket or self._start()
        try:
            socket.send_fds(orders, [json.dumps(order).encode()], [fd])
            raw = _line(orders, until=time.monotonic() + order["for_s"] * KILLED_AFTER)
        except OSError as error:  # a TimeoutError too
            self._stop()
            raise UnreadableDocument(TOO_MUCH) from error
        answer = json.loads(raw)
        if "flaw" in answer:
            raise UnreadableDocument(answer["flaw"])
        answer["passages"] = [Passage(*fields) for fields in answer["passages"]]
        return cast(Answer, answer)

    def _start(self) -> socket.socket:
        root = str(Path(loom_worker.__file__).parent.parent)
        ours, theirs = socket.socketpair()
        with theirs:
            # -I: no PYTHON* variables; -B: it may write no file, not even its own compiled modules.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-B", "-c", _PROGRAM, root],
                env=process_env.inherited(os.environ),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._socket = ours
        return ours

    def _stop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        self._process = self._socket = None


def _line(orders: socket.socket, *, until: float) -> bytes:
    """One line of an answer; escaped JSON holds no other line feed."""
    parts: list[bytes] = []
    size = 0
    while not (parts and parts[-1].endswith(b"\n")):
        left_s = until - time.monotonic()
        if left_s <= 0 or size > MAX_ANSWER_BYTES:
            raise TimeoutError("the reader takes too long")
        orders.settimeout(left_s)
        part = orders.recv(1 << 20)
        if not part:
            raise ConnectionResetError("the reader died")
        parts.append(part)
        size += len(part)
    return b"".join(parts)
