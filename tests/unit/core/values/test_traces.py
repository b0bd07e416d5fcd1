"""What the journal keeps for traces comes back as it was."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.traces import FIRST_RUNS, RUNS, CallTimes, Interval, RunEnd, Try, TurnTrace, WorkerRun

moments = st.integers(1, 2**53)
intervals = st.tuples(moments, moments).map(lambda pair: Interval(min(pair), max(pair)))
runs = st.builds(WorkerRun, st.integers(1), st.text(max_size=5), moments, moments, st.sampled_from(get_args(RunEnd)))
tries = st.builds(Try, intervals) | st.builds(Try, intervals, st.just("Overloaded"), st.text(max_size=5))
call_times = st.builds(
    CallTimes,
    st.integers(1),
    st.text(max_size=5),
    st.text(max_size=5),
    st.none() | intervals,
    st.integers(0),
    st.lists(tries, max_size=3).map(tuple),
    st.none() | moments,
)
traces = st.builds(
    TurnTrace,
    st.none() | moments,
    st.none() | moments,
    st.booleans(),
    st.booleans(),
    st.lists(runs, max_size=4).map(tuple),
    st.none() | call_times.map(CallTimes.as_json),
    st.none() | st.just({"turns": 1, "tokens": 2, "cost_usd": None}),
    st.none() | intervals,
    st.none() | intervals,
)


@given(traces)
def test_a_trace_comes_back_from_its_column(trace: TurnTrace) -> None:
    assert TurnTrace.of(json.loads(json.dumps(trace.as_json()))) == trace


@given(call_times)
def test_times_come_back_from_their_step(times: CallTimes) -> None:
    assert CallTimes.of(json.loads(json.dumps(times.as_json()))) == times


@pytest.mark.parametrize("column", [None, {}])
def test_of_a_turn_of_an_earlier_version_nothing_is_known(column: dict[str, object] | None) -> None:
    assert TurnTrace.of(column) == TurnTrace()
    assert TurnTrace.of({"of_a_newer_version": 1}) == TurnTrace()
    assert TurnTrace().as_json() == {}
    assert CallTimes.of(column) is None


def run(fence: int) -> WorkerRun:
    return WorkerRun(fence, "w", fence, fence + 1, "parked")


def test_of_more_runs_than_are_kept_the_first_and_the_last_are_kept() -> None:
    trace = TurnTrace()
    for fence in range(1, 3 * RUNS + 1):
        trace = trace.with_run(run(fence))
    kept = [run.fence for run in trace.runs]
    assert kept == [*range(1, FIRST_RUNS + 1), *range(3 * RUNS - (RUNS - FIRST_RUNS) + 1, 3 * RUNS + 1)]
    assert TurnTrace.of(trace.as_json()) == trace


def test_all_runs_are_kept_of_a_turn_that_has_no_more() -> None:
    trace = TurnTrace()
    for fence in range(RUNS):
        trace = trace.with_run(run(fence))
    assert len(trace.runs) == RUNS


def test_an_interval_of_a_clock_that_stepped_back_is_a_moment() -> None:
    assert Interval.of([5, 3]) == Interval(5, 5)
