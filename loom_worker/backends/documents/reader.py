"""The program that reads files, in a process of its own: a bomb, a hang or a crash in a parser costs one file.

Orders come over a socket on stdin: one JSON object each, together with the open file, so the process needs no path
and opens none. The answer is one line of JSON. Memory and processor time are limited, and no file can be
written. ``Reading`` is the other end: it kills the process and starts it anew when a file is too much.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self, TypedDict, cast

import loom_worker
from loom_worker.backends.documents.extract import Extract, Line, Passage, UnreadableDocument, extract, passages
from loom_worker.core.isolation import process_env
from loom_worker.core.values.json import Json

MAX_MEMORY_BYTES = 1024 * 1024 * 1024
KILLED_AFTER = 1.5
"""Times of its own time a file may take until the line it is at comes to an end; then the process is killed."""
MAX_ORDER_BYTES = 4096


class ReadRequest(TypedDict):
    """What to read."""

    kind: str
    from_page: int
    """1, or where an earlier reading of a long PDF stopped."""
    from_line: int
    """The number that its first line gets."""
    room_chars: int
    """Characters that may come of it; at most MAX_CHARS."""
    for_s: float


class Answer(TypedDict):
    """What was read."""

    title: str
    passages: list[Passage]
    """As JSON, each is an array."""
    pages: int | None
    encoding: str
    lines: int
    """The number of the last line."""
    next_page: int | None
    """Where to go on; None: this was all, or all that is kept."""
    cut: str
    """Why the rest of the document is left out; empty: it is all there."""


class _Reading:
    def __init__(self, document: Extract, order: ReadRequest, clock: Callable[[], float]) -> None:
        self.next_page: int | None = None
        self.cut = ""
        self.last = order["from_line"] - 1
        self._document = document
        self._room = order["room_chars"]
        self._clock = clock
        self._until = clock() + order["for_s"]

    def lines(self) -> Iterator[Line]:
        page = None
        for line in self._document.lines:
            if self._is_over(line, page):
                return
            if line is None:
                continue
            self._room -= len(line.text) + 1
            if self._room < 0:
                self.cut = "the rest is left out: it is too long"
                line = line._replace(text=line.text[: self._room])
            self.last += 1
            page = line.page
            yield line
            if self.cut:
                return

    def _is_over(self, line: Line | None, page: int | None) -> bool:
        """True once the time is over: a PDF is gone on with at the page that would begin, other kinds are cut."""
        at = line.page if line else None
        if self._clock() < self._until or (at is not None and page in (None, at)):
            return False
        if at is None:
            self.cut = f"only its first {self.last} lines are here: reading took too long"
        self.next_page = at
        return True


def answer(file: BinaryIO, order: ReadRequest, clock: Callable[[], float] = time.monotonic) -> Answer:
    """Read a file, or as much of it as there is time and room for.

    Raises:
        UnreadableDocument: it cannot be read, or holds no text.
    """
    document = extract(file, order["kind"], from_page=order["from_page"])
    reading = _Reading(document, order, clock)
    found = list(passages(reading.lines(), first=order["from_line"]))
    is_all = order["from_page"] == 1 and reading.next_page is None
    if is_all and not any(passage.body.strip() for passage in found):
        if reading.cut:
            raise UnreadableDocument("reading it takes too long")
        raise UnreadableDocument("it holds no text" + (", only images perhaps" if document.pages else ""))
    return {
        "title": document.title,
        "passages": found,
        "pages": document.pages,
        "encoding": document.encoding,
        "lines": reading.last,
        "next_page": reading.next_page,
        "cut": reading.cut,
    }


def serve(orders: socket.socket) -> None:
    """Answer orders until the other end closes."""
    while True:
        raw, files, _flags, _from = socket.recv_fds(orders, MAX_ORDER_BYTES, 1)
        if not raw:
            return
        order: ReadRequest = json.loads(raw)
        _limit_processor(order["for_s"])
        with os.fdopen(files[0], "rb") as file:
            reply = _safe_answer(file, order)
        orders.sendall(json.dumps(reply, ensure_ascii=True, separators=(",", ":")).encode() + b"\n")


def _safe_answer(file: BinaryIO, order: ReadRequest) -> Json:
    try:
        return dict(answer(file, order))
    except UnreadableDocument as error:
        return {"flaw": str(error)}
    except MemoryError:
        return {"flaw": "reading it needs too much memory"}
    except Exception as error:  # the top of this process: a file that some parser chokes on is data, whatever it raises
        return {"flaw": f"it cannot be read ({type(error).__name__})"}


def _limit_processor(for_s: float) -> None:
    """Ends a parser that hangs even if the parent is gone and nobody kills it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + for_s * KILLED_AFTER) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))


def main() -> None:
    """Serve the socket on stdin, within limits."""
    for limit, value in ((resource.RLIMIT_AS, MAX_MEMORY_BYTES), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (value, value))
    with socket.socket(fileno=0) as orders:
        serve(orders)


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
            UnreadableDocument: it cannot be read; if its reader had to be killed or died, the text is TOO_MUCH.
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
