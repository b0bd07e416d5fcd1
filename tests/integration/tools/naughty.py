"""Tools that hang, fork, print, die and swallow memory; loaded by the children of the tests' pools."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from loom_worker.core.errors import ToolFailed
from loom_worker.tools.declare import Caller, tool


@tool
def pid() -> int:
    """Tell the process."""
    return os.getpid()


@tool
def lie() -> str:
    """Say that all this was at a time that no calendar has."""
    from loom_worker.tools import child_main

    child_main.now_us = lambda: 10**30
    return "done"


@tool
def hang_in_c(note: str) -> str:
    """Backtrack for ever in C, without ever letting go of the interpreter."""
    import re

    _told(note)
    return str(re.fullmatch(r"(a+)+", "a" * 100 + "b"))


@tool
def hang_in_a_socket(note: str, port: int) -> bytes:
    """Wait for an answer that nobody gives."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        _told(note)
        return connection.recv(1)


@tool
def hang_stubbornly(note: str) -> None:
    """Ignore what can be ignored, and have a grandchild that does the same."""
    stubborn = "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: signal.pause()"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    grandchild = subprocess.Popen([sys.executable, "-c", stubborn])
    _told(note, grandchild.pid)
    grandchild.wait()


@tool
def fork(note: str) -> int:
    """Fork; the copy comes back too, once it is let."""
    copy = os.fork()
    if copy == 0:
        while not Path(note + ".go").exists():
            time.sleep(0.005)
    return copy


@tool
def die_with_a_copy_alive(note: str) -> None:
    """End at once, and leave behind a copy that holds all pipes open."""
    if (copy := os.fork()) == 0:
        signal.pause()
    _told(note, copy)
    os._exit(3)


@tool
def crash() -> None:
    """Die of a signal."""
    os.kill(os.getpid(), signal.SIGSEGV)


@tool
def shout() -> str:
    """Write to stdout in every way, and read stdin."""
    sys.stdout.write("printed\n")
    os.write(1, b"\0\0\0\1x" * 10)
    subprocess.run(["echo", "a child's echo"], check=True)
    return repr(sys.stdin.read())


@tool
def swallow(memory: int) -> int:
    """Take memory."""
    return len(bytearray(memory))


@tool
def environment(variable: str) -> str | None:
    """A variable."""
    return os.environ.get(variable)


@tool
def fail(text: str, code: str) -> None:
    """Fail as asked."""
    raise ToolFailed(text, code)


@tool
def text(times: int, caller: Caller) -> str:
    """Much text."""
    return f"für {caller.session_id} 日本 😀 \ud83d\n" * times


@tool
def meet(note: str, others: int) -> str:
    """Come back only once all the others are here too."""
    Path(note, str(os.getpid())).touch()
    while len(list(Path(note).iterdir())) < others:
        time.sleep(0.005)
    return "met"


def _told(note: str, more: int = 0) -> None:
    """Tell the test which processes are at work now."""
    Path(note + ".new").write_text(f"{os.getpid()} {more}")
    Path(note + ".new").rename(note)
