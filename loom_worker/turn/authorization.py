"""Whether a call that the model asks may run, and who must be asked first."""

from collections.abc import Callable, Mapping, Sequence

from loom_worker.core.values.chat import ToolUse
from loom_worker.turn.runtime import Execution
from loom_worker.turn.tool_plan import Checked


def examiner(uses: Sequence[ToolUse], execution: Execution) -> Callable[[ToolUse], Checked]:
    """Look at each of a reply's calls: tool, arguments, rights, circuit breaker, approval."""
    registry = execution.runtime.registry
    tools = {use.name: tool for use in uses if (tool := registry.get(use.name)) is not None}
    groups = sorted({tool.group for tool in tools.values() if tool.group})
    open_for_s = execution.worker.open_breakers(groups) if groups else {}
    return lambda use: _checked(use, execution, open_for_s)


def _checked(use: ToolUse, execution: Execution, open_for_s: Mapping[str, float]) -> Checked:
    runtime = execution.runtime
    prepared = runtime.prepared(use)
    tool = runtime.registry.get(use.name)
    if prepared.flaw is not None or tool is None:
        return Checked(use.arguments, prepared.flaw)
    wait_s = open_for_s.get(tool.group)
    if wait_s is not None:
        text = f"UNAVAILABLE: {use.name} has failed several times in a row and is not tried for {wait_s:.0f} s."
        return Checked(prepared.arguments, f"{text} Go on without it.")
    if not runtime.agent.approval.holds(tool):
        return Checked(prepared.arguments)
    approve_by_ms = execution.worker.clock_ms() + int(runtime.agent.approval.timeout_s * 1000)
    return Checked(prepared.arguments, approve_by_ms=approve_by_ms)
