"""Tools as a user writes them; each world has a copy beside its agent. They run in child processes of the workers."""

import hashlib
import json
import os
import time
from pathlib import Path

from loom_worker.tools.declare import tool

REPORT_LINES = 400
"""Of fifty characters: 20 kB, more than a result may have that goes to the model whole."""
WORKER = os.getppid()
"""The process that started this one, as long as it lives."""


@tool(idempotent=True)
def note(nonce: str, seconds: float = 0.0) -> str:
    """Take a note, after some seconds."""
    time.sleep(seconds)
    return _done("note", nonce)


@tool
def charge(nonce: str, seconds: float = 0.0) -> str:
    """Charge somebody, after some seconds; that must not happen twice."""
    time.sleep(seconds)
    return _done("charge", nonce)


@tool(needs_approval=True)
def refund(nonce: str) -> str:
    """Give money back, once a person agrees."""
    return _done("refund", nonce)


@tool(idempotent=True)
def report(nonce: str) -> str:
    """Write a long report, always the same."""
    text = "\n".join(f"entry {n:03d} of the report {nonce}: ".ljust(49, ".") for n in range(REPORT_LINES))
    _done("report", nonce, hashlib.sha256(text.encode()).hexdigest())
    return text


def _done(name: str, nonce: str, sha256: str = "") -> str:
    """One write to a file opened for appending: lines of several processes never mix."""
    line = {"tool": name, "nonce": nonce, "at_s": time.time(), "worker": WORKER, "sha256": sha256}
    handle = os.open(Path(os.environ["LOOM_CHAOS_EFFECTS"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, json.dumps(line).encode() + b"\n")
    finally:
        os.close(handle)
    return f"done: {nonce}"
