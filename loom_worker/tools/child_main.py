"""The program of a child process in which a worker runs tools, see ``loom_worker.tools.pool``.

It reads requests from stdin and answers on stdout, one after the other, packed as in ``loom_worker.tools.pool``.
Tools see neither: they get an empty stdin, and whatever they print goes to stderr.
"""

import contextlib
import fcntl
import io
import json
import os
import resource
import select
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import BinaryIO

from loom_worker.core import child_process
from loom_worker.core.errors import BadFile
from loom_worker.core.isolation import landlock
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.tools import outcome, targets
from loom_worker.tools.pool import packed, unpacked

MEMORY_BYTES = 2 << 30
"""Bytes of address space beyond what the child uses when it starts; a tool that needs more gets MemoryError."""
_F_SETSIG = 10
"""From fcntl.h on Linux; Python 3.11 does not name it."""
_OOM_SCORE = "800"


def command(limits: Mapping[str, Sequence[str]] | None = None) -> tuple[str, ...]:
    """The command line of a child, to which the number of the pipe that ends with the worker must be added.

    -P: what lies in the worker's folder cannot stand in for the standard library.

    Args:
        limits: arguments of ``landlock.confine``, which the child obeys as far as the kernel can; None: no limits.
    """
    own = tuple(child_process.module_command("loom_worker.tools.child_main", "-P"))
    return own if limits is None else (*own, json.dumps(limits))


def build(origin: Json) -> tuple[Tool, ...]:
    """The tools of an origin.

    Raises:
        LoomError: its kind is unknown, or it cannot be built.
    """
    match origin.get("kind"):
        case "python":
            return targets.tools(origin["target"], Path(origin["folder"]), origin.get("source"))
        case "sql":
            from loom_worker.backends.sql import SqlBackend

            return SqlBackend.from_origin(origin).tools()
        case "documents":
            from loom_worker.backends.documents.backend import from_origin

            return from_origin(origin).tools()
    raise BadFile(f"a tool of the unknown kind {origin.get('kind')!r}")


class ToolServer:
    """Keeps the tools that this child has built by origin; each version of a file is one, and its text is sent once."""

    def __init__(self) -> None:
        self._built: dict[str, dict[str, Tool]] = {}

    def answer(self, request: Json, began: Callable[[], None]) -> Json:
        """Run the requested tool; return its outcome as JSON.

        Args:
            began: called when the tool is built and its time starts.
        """

        def run(arguments: Json, caller: Caller) -> object:
            origin, name = request["origin"], request["tool"]
            key = repr({part: value for part, value in origin.items() if part != "source"})
            if key not in self._built:
                self._built[key] = {tool.spec.name: tool for tool in build(origin)}
            built = self._built[key]
            if name not in built:
                raise BadFile(f"there is no tool {name!r} any more; tools: {', '.join(built) or 'none'}")
            began()
            return built[name].run(arguments, caller)

        # An error while building the tool is reported like one while running it.
        whole = Tool(ToolSpec(request["tool"], "", {}), run)
        caller, began_us = Caller(**request["caller"]), now_us()
        answer = asdict(outcome.run(whole, request["arguments"], caller, max_bytes=request["max_bytes"]))
        return {**answer, "process": {"pid": os.getpid(), "at": [began_us, now_us()]}}


def main() -> None:
    """Answer requests until stdin ends.

    Its arguments are what ``command`` adds and, last, the read end of a pipe that ends when the worker does.
    """
    *limits, life = sys.argv[2:]
    asked, answers = _own_pipes()
    _die_with_worker(int(life))
    _limit_memory()
    if limits:
        landlock.confine(**json.loads(limits[0]))
    server, pid = ToolServer(), os.getpid()
    while (request := unpacked(asked.read)) is not None:
        began = partial(_send, answers, {}) if request["tells_start"] else lambda: None
        answer = server.answer(request, began)
        if os.getpid() != pid:
            os._exit(0)  # a tool forked, and this is the copy that came back
        _send(answers, answer)


def _send(answers: BinaryIO, message: Json) -> None:
    answers.write(packed(message))
    answers.flush()


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move stdin and stdout out of the reach of tools and of what they start."""
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return asked, answers


def _die_with_worker(life: int) -> None:
    """Have the whole process group killed when the pipe ends.

    By the kernel where possible: a tool that hangs in C keeps all of our threads from running. (PR_SET_PDEATHSIG
    follows the thread that started us, which may end long before the worker, and spares what a tool has started.)
    """

    def watch() -> None:
        os.read(life, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    if sys.platform == "linux":
        fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life, _F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([life], [], [], 0)[0]:  # the worker died before this took effect
            os._exit(1)
    else:
        threading.Thread(target=watch, name="worker's life", daemon=True).start()


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):  # no /proc, or a lower limit is set already
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")
