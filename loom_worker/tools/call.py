"""Runs one tool and makes of whatever it does a result that can be stored and sent."""

import contextvars
import logging
import queue
import threading
from dataclasses import dataclass
from typing import Literal

from loom_worker.errors import ToolFailed
from loom_worker.values.json import Json
from loom_worker.values.tools import Caller, Tool

MAX_CONTENT_BYTES = 16 * 1024
"""Of a result in UTF-8; more is cut."""
MAX_FAILURE_CHARS = 100
"""Of a failure's text, its code apart."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended and what the model reads of it: a failure in at most 100 characters and a code."""

    status: Literal["completed", "failed", "timeout"]
    content: str


def call(tool: Tool, arguments: Json, caller: Caller, *, timeout_s: float) -> Outcome:
    """Run a tool whose arguments passed its schema; never raises for anything the tool does.

    A tool that is not bounded runs in a thread. One that does not return in time is left to itself (threads cannot
    be killed) and its late result is dropped.

    Args:
        timeout_s: of the process; the tool's own holds if it is shorter.
    """
    if tool.is_bounded:
        return _run(tool, arguments, caller)
    limit_s = min(tool.timeout_s, timeout_s)
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    context = contextvars.copy_context()
    thread = threading.Thread(
        target=lambda: outcomes.put(context.run(_run, tool, arguments, caller)),
        name=f"tool {tool.spec.name}",
        daemon=True,
    )
    thread.start()
    try:
        return outcomes.get(timeout=limit_s)
    except queue.Empty:
        log.warning("tool %s did not return in %g s; its thread %s is left", tool.spec.name, limit_s, thread.ident)
        return Outcome("timeout", _short(f"Tool '{tool.spec.name}' timed out after {limit_s:g} s"))


def _run(tool: Tool, arguments: Json, caller: Caller) -> Outcome:
    name = tool.spec.name
    try:
        content: object = tool.run(arguments, caller)  # of another type where a tool breaks its promise
    except ToolFailed as failed:
        log.info("tool %s failed: %s", name, failed, exc_info=True)
        code = f" [{failed.code}]" if failed.code else ""
        return Outcome("failed", _short(clean(str(failed.args[0] if failed.args else "failed"))) + code)
    except (Exception, SystemExit) as error:  # the top of a task: a tool's bug must close the call, not the turn
        log.exception("tool %s raised", name)
        return Outcome("failed", _short(f"Tool '{name}' failed: {type(error).__name__}"))
    if not isinstance(content, str):
        log.error("tool %s returned %s, expected str", name, type(content).__name__)
        return Outcome("failed", _short(f"Tool '{name}' failed: it returned no text"))
    return Outcome("completed", fitted(clean(content)))


def clean(text: str) -> str:
    """Make text fit to be stored and sent: NUL is taken out, a lone surrogate becomes U+FFFD, a pair one character."""
    return text.replace("\0", "").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def fitted(text: str) -> str:
    """Cut text to MAX_CONTENT_BYTES between two characters; its end then says how long it was."""
    raw = text.encode()
    if len(raw) <= MAX_CONTENT_BYTES:
        return text
    note = f"\n… [cut: this is the beginning of {len(text):,} characters ({len(raw):,} bytes)]"
    return raw[: MAX_CONTENT_BYTES - len(note.encode())].decode("utf-8", "ignore") + note


def _short(text: str) -> str:
    return text if len(text) <= MAX_FAILURE_CHARS else text[: MAX_FAILURE_CHARS - 1] + "…"
