"""Tools as a user writes them, for agents of the journeys; the file is copied beside the agents' own.

Those that take a ``port`` tell the test who they are and wait there until it lets them go on: see ``meeting.py``.
"""

import json
import os
import re
import socket
from pathlib import Path
from typing import Annotated

from loom_worker.core.errors import ToolFailed
from loom_worker.tools.declare import Caller, tool

HERE = Path(__file__).parent


@tool(read_only=True)
def meet(port: int, name: Annotated[str, "Who comes."]) -> str:
    """Wait until somebody says how to go on, and tell it."""
    return _told(port, name)


@tool
def change(port: int, name: str) -> str:
    """Change something, when somebody says so; nobody can tell afterwards whether it was done."""
    return _told(port, name)


@tool(read_only=True, timeout_s=1)
def hang(port: int, name: str) -> str:
    """Never end, in C and with the interpreter's lock held."""
    with socket.create_connection(("127.0.0.1", port)) as there:
        _introduce(there, name)
        return str(re.match(r"(a|a)+$", "a" * 64 + "b"))


@tool(read_only=True)
def connect(shop: str) -> str:
    """Fail as a driver does: much is said, and more than the model should read."""
    raise ConnectionError(f"no route to postgres://clerk:hunter2secret@{shop}/orders\n" + "tried again, " * 250)


@tool(read_only=True)
def broken() -> str:
    """Fail, whatever is asked."""
    raise RuntimeError("the shelf fell down")


@tool(read_only=True)
def overdone() -> str:
    """Fail so often that nobody calls it any more; others need one that is called."""
    raise RuntimeError("the shelf fell down again")


@tool(read_only=True)
def count(n: int) -> int:
    """The number after n."""
    if n < 0:
        raise ToolFailed("n must not be negative", "INVALID_INPUT")
    return n + 1


@tool(read_only=True)
def letter() -> str:
    """Read a letter from a stranger."""
    return (HERE / "letter.txt").read_text()


@tool(needs_approval=True)
def pay(amount: int, to: str, caller: Caller) -> str:
    """Pay somebody."""
    with (HERE / "paid.jsonl").open("a") as paid:
        paid.write(json.dumps({"amount": amount, "to": to, "session": caller.session_id}) + "\n")
    return f"{amount} is paid to {to}."


def _told(port: int, name: str) -> str:
    with socket.create_connection(("127.0.0.1", port)) as there:
        _introduce(there, name)
        return there.makefile().readline()


def _introduce(there: socket.socket, name: str) -> None:
    there.sendall(json.dumps({"name": name, "pid": os.getpid()}).encode() + b"\n")
