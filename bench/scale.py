"""How much is measured."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Counts of a full run."""

    steady_turns: int = 30
    """Behind each of 50 sessions before `latency`, `throughput`, `http`, `cpu`, `budget` and `peers` measure them."""
    latency_turns: int = 300
    burst_turns: int = 500
    """Of a burst over 50 sessions."""
    wide_turns: int = 1000
    """Of a burst with a session each."""
    slow_turns: int = 250
    """Of a burst over 50 sessions with a model that takes a second."""
    long_turns: int = 1200
    tool_turns: int = 15
    trace_turns: int = 500
    """Of a burst; there is one a round with each way of exporting."""
    trace_rounds: int = 8
    idle_s: float = 20.0
    stream_s: float = 10.0
    """For so long events are written to each crowd of readers."""
    disk_turns: int = 1000
    budget_sessions: int = 50
    budget_turns: int = 300
    """One after the other; the burst has burst_turns."""
    peer_turns: int = 1000
    """Of a burst, on each system."""
    workflow_runs: int = 40
    """One after the other."""
    writers_s: float = 20.0
    """For so long turns are written on a slow disk."""
    flying_runs: int = 1000
    """At once."""


QUICK = Scale(
    latency_turns=60,
    burst_turns=200,
    wide_turns=300,
    slow_turns=100,
    long_turns=240,
    tool_turns=3,
    trace_turns=200,
    trace_rounds=4,
    idle_s=5.0,
    stream_s=5.0,
    disk_turns=200,
    budget_sessions=10,
    budget_turns=100,
    peer_turns=200,
    workflow_runs=10,
    writers_s=5.0,
    flying_runs=100,
)
"""A look at the order of magnitude, in a few minutes."""
