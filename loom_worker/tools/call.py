"""Runs one tool, where it can be ended if it must be, and makes of whatever it does an outcome."""

import contextvars
import logging
import queue
import threading

from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Outcome, Tool
from loom_worker.tools.outcome import run, timed_out
from loom_worker.tools.pool import Pool

log = logging.getLogger(__name__)


def call(
    tool: Tool, arguments: Json, caller: Caller, *, timeout_s: float, pool: Pool | None, max_bytes: int
) -> Outcome:
    """Run a tool whose arguments passed its schema; never raises for anything the tool does.

    A tool with an origin runs in a child process, which is killed when its time is over. A bounded one runs here.
    Any other runs in a thread of ours; if it does not return in time it is left to itself (threads cannot be killed)
    and its late result is dropped.

    Args:
        timeout_s: of the process; the tool's own holds if it is shorter.
        pool: where tools with an origin run; None for those who have no such tools.
        max_bytes: of a result in UTF-8; more is cut, and its end says so.

    Raises:
        Interrupted: the worker stops and has killed the tool.
    """
    limit_s = min(tool.timeout_s, timeout_s)
    if tool.is_bounded:
        outcome = run(tool, arguments, caller, max_bytes=max_bytes)
    elif tool.origin is not None and pool is not None:
        outcome = pool.run(tool, arguments, caller, timeout_s=limit_s, max_bytes=max_bytes)
    else:
        outcome = _in_thread(tool, arguments, caller, limit_s, max_bytes)
    if outcome.status != "completed":
        level = logging.ERROR if outcome.is_fault else logging.INFO
        # Not what it says: that may be long and hold secrets, and is logged where those are taken out of it.
        log.log(level, "tool %s: %s (%s)", tool.spec.name, outcome.status, outcome.code or "no code")
    return outcome


def _in_thread(tool: Tool, arguments: Json, caller: Caller, limit_s: float, max_bytes: int) -> Outcome:
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    context = contextvars.copy_context()
    thread = threading.Thread(
        target=lambda: outcomes.put(context.run(run, tool, arguments, caller, max_bytes=max_bytes)),
        name=f"tool {tool.spec.name}",
        daemon=True,
    )
    thread.start()
    try:
        return outcomes.get(timeout=limit_s)
    except queue.Empty:
        log.warning("tool %s did not return in %g s; its thread %s is left", tool.spec.name, limit_s, thread.ident)
        return timed_out(limit_s)
