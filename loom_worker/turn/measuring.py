"""What a turn that has ended adds to the metrics: how long it took, and what its tools, judges and patterns did."""

from loom_worker.core import metrics
from loom_worker.core.values.audit import NOT_RUN
from loom_worker.core.values.calls import Call
from loom_worker.core.values.turns import Turn
from loom_worker.turn.state import TurnState


def measure(turn: Turn, state: TurnState) -> None:
    """Observe a turn once it is committed that it has ended.

    Args:
        turn: as every reader finds it, with all of its calls.
    """
    ended_ms = turn.completed_ms or turn.created_ms
    metrics.TURN_DURATION.observe((ended_ms - turn.created_ms) / 1000, turn.status)
    metrics.TURN_RUN.observe(turn.run_ms / 1000, turn.status)
    if turn.started_ms is not None:
        metrics.TURN_QUEUE_WAIT.observe((turn.started_ms - turn.created_ms) / 1000)
    if turn.first_token_ms is not None:
        metrics.TURN_FIRST_TOKEN.observe(turn.first_token_ms / 1000)
    for call in turn.calls:
        _measure_call(call)
    for verdict in state.verdicts:
        metrics.JUDGE_VERDICTS.count(verdict.name, "cancelled" if verdict.is_open else verdict.status)
        if verdict.score is not None:
            metrics.JUDGE_SCORES.observe(verdict.score, verdict.name)
    _measure_patterns(turn, state)


def _measure_call(call: Call) -> None:
    """A call that nobody ran counts under a name of its own: the model's may be any text."""
    is_known = call.sends > 0 or call.approval is not None
    tool = call.name if is_known else NOT_RUN
    metrics.TOOL_CALLS.count(tool, call.status)
    if call.duration_ms is not None:
        metrics.TOOL_DURATION.observe(call.duration_ms / 1000, tool)


def _measure_patterns(turn: Turn, state: TurnState) -> None:
    used = [(str(each["id"]), "loaded" if each.get("how") == "loaded" else "matched") for each in turn.patterns]
    for pattern, how in used:
        metrics.PATTERN_HITS.count(pattern, how)
    if state.is_matched:
        is_hit = any(how == "matched" for _, how in used)
        metrics.PATTERN_LOOKUPS.count("hit" if is_hit else "miss")
