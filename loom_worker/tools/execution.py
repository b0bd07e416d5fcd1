"""How a worker runs a tool: rate, circuit breaker, child process or thread, and what is stored of its outcome."""

import contextvars
import logging
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from loom_worker.core.errors import Interrupted, ToolFailed
from loom_worker.core.settings import Settings
from loom_worker.core.stopping import Stopping
from loom_worker.core.text import clean
from loom_worker.core.values.calls import Call
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Outcome, Tool
from loom_worker.guard.limits import Breakers, RateLimiter
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.tools.error_channel import Failures
from loom_worker.tools.files import Files
from loom_worker.tools.outcome import run, timed_out
from loom_worker.tools.pool import Pool
from loom_worker.tools.references import References
from loom_worker.tools.result_rows import shortened

log = logging.getLogger(__name__)

MOST_RATE_WAIT_S = 5.0
"""A call that would wait longer for its tool's rate fails at once."""
PROBE_SLACK_S = 10.0
"""A breaker's probe is abandoned this long after its tool should have ended."""


@dataclass(frozen=True, slots=True)
class ToolExecutor:
    """Runs tool calls in this process."""

    settings: Settings
    pool: Pool
    breakers: Breakers
    rates: RateLimiter
    files: Files
    failures: Failures
    stopping: Stopping

    @property
    def references(self) -> References:
        """Large results, which share the disk with the files."""
        return self.files.references

    def run(self, tool: Tool, arguments: Json, caller: Caller) -> Outcome:
        """Run a tool whose arguments passed its schema; whatever it does becomes an Outcome.

        Raises:
            Interrupted: the worker stops; the call may be made again elsewhere.
        """
        if tool.rate is not None:
            try:
                self.rates.wait(tool.group or tool.spec.name, tool.rate, at_most_s=MOST_RATE_WAIT_S, pause=self._pause)
            except ToolFailed as refused:
                return Outcome("failed", str(refused), code=refused.code)
        return self._guarded(tool, arguments, caller) if tool.group else self._run(tool, arguments, caller)

    def _guarded(self, tool: Tool, arguments: Json, caller: Caller) -> Outcome:
        limit_s = self.settings.limits.tool_timeout_s
        name = f"tool:{tool.group}"  # models have breakers too
        permit = self.breakers.permit(name, probe_s=min(tool.timeout_s, limit_s) + PROBE_SLACK_S)
        if permit.open_for_s is not None:
            text = f"{tool.spec.name} has failed several times in a row and is not tried for {permit.open_for_s:.0f} s"
            return Outcome("failed", text, code="UNAVAILABLE")
        try:
            outcome = self._run(tool, arguments, caller)
        except BaseException:  # a stopping worker says nothing about the tool, and must not keep the probe
            self.breakers.abandoned(name, permit.token)
            raise
        if outcome.is_fault:
            self.breakers.failed(name, permit.token, source=caller.source)
        else:
            self.breakers.succeeded(name, permit.token)
        return outcome

    def _run(self, tool: Tool, arguments: Json, caller: Caller) -> Outcome:
        timeout_s, max_bytes = self.settings.limits.tool_timeout_s, self.settings.tools.max_result_bytes
        began_us = now_us()
        outcome = call_tool(tool, arguments, caller, timeout_s=timeout_s, pool=self.pool, max_bytes=max_bytes)
        outcome = self.files.taken_out(outcome, caller)
        if tool.occasion != "error" or outcome.code == "INVALID_INPUT":
            return outcome
        read = {"error_id": str(arguments["error_id"]).strip(), "at": [began_us, now_us()]}
        return replace(outcome, error_read=read)

    def _pause(self, wait_s: float) -> None:
        if self.stopping.pause(wait_s):
            raise Interrupted("The worker stops.")

    def with_outcome(self, call: Call, outcome: Outcome, caller: Caller) -> Call:
        """The call with what the model reads of its outcome, and where the whole outcome is kept."""
        parts = {"process": outcome.process, "error_read": outcome.error_read}
        trace: Json = {name: part for name, part in parts.items() if part}
        media = list(map(asdict, outcome.media)) or None
        call = replace(call, guard=list(outcome.guard) or None, trace=trace or None, media=media)
        if outcome.status != "completed":
            began_us = now_us()
            content, error_id = self.failures.keep(caller, call.name, outcome)
            trace["error_stored"] = [began_us, now_us()]
            return replace(call, status=outcome.status, content=content, error_id=error_id, trace=trace)
        text, most_bytes = clean(outcome.content), self.settings.tools.reference_bytes
        if len(text.encode()) < most_bytes:
            return replace(call, status="completed", content=text)
        kept = self.references.keep(outcome.content, outcome.content_type, caller, tool=call.name, count=cl100k_tokens)
        if kept is None:
            return replace(call, status="completed", content=clean(shortened(outcome.content, most_bytes=most_bytes)))
        return replace(call, status="completed", content=clean(kept.preview), ref=kept.reference.id)

    def open_breakers(self, names: Sequence[str]) -> Mapping[str, float]:
        """Those of these circuit breakers that are open, with the seconds left."""
        found = self.breakers.open_now([f"tool:{name}" for name in names])
        return {name.removeprefix("tool:"): left_s for name, left_s in found.items()}

    def close(self) -> None:
        """End the child processes."""
        self.pool.close()


def call_tool(
    tool: Tool, arguments: Json, caller: Caller, *, timeout_s: float, pool: Pool | None, max_bytes: int
) -> Outcome:
    """Run a tool whose arguments passed its schema; never raises, whatever the tool does.

    A tool with an origin runs in a child process, which is killed when its time is over. A bounded one runs in this
    thread. Any other runs in a thread of its own; if it does not return in time, the thread is left running (threads
    cannot be killed) and its late result is dropped.

    Args:
        timeout_s: of the process; the tool's own applies if it is shorter.
        pool: where tools with an origin run; None if there are no such tools.
        max_bytes: of a result in UTF-8; the rest is cut, and the end says so.

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
        # Without its text, which may be long and contain secrets; it is logged where those are redacted.
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
