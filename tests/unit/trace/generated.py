"""Records of turns as hypothesis makes them up: at any stage, with clocks that step back, and with a secret in all
that somebody wrote."""

from dataclasses import replace
from typing import Any, get_args

from hypothesis import strategies as st

from loom_worker.core.values.budgets import usd
from loom_worker.core.values.calls import OPEN_CALL, Approval, Call, CallStatus
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.judges import Verdict, VerdictStatus
from loom_worker.core.values.memory import Change, Level, Summary
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.spans import TraceSpan
from loom_worker.core.values.traces import CallTimes, Interval, RunEnd, TracedTurn, Try, TurnTrace, WorkerRun
from loom_worker.core.values.turns import UNFINISHED, Step, TurnStatus
from loom_worker.store.turn_records import TurnRecord
from loom_worker.trace.later import of_attempt, of_compression
from tests.unit.trace.made import AT_MS, AT_US, PARENT_ID, TRACE_ID, turn

SECRET = "xyzzy-the-word-that-nobody-may-see"
ENDED: tuple[TurnStatus, ...] = tuple(status for status in get_args(TurnStatus) if status not in UNFINISHED)

moments_us = st.integers(AT_US, AT_US + 10_000_000)
moments_ms = st.integers(AT_MS, AT_MS + 10_000)
intervals = st.builds(Interval, moments_us, moments_us)
fences = st.integers(1, 8)
tokens = st.integers(0, 1_000_000)
costs = st.none() | st.integers(0, 100).map(usd)
usages = st.builds(Usage, tokens, tokens, tokens, tokens, costs, st.integers(0, 3))
errors = st.none() | st.sampled_from(["Transient", "ProviderFailed"])
tries = st.builds(Try, intervals, errors, st.just("busy")) | st.builds(Try, intervals)
call_times = st.builds(
    CallTimes,
    fences,
    st.sampled_from(["anthropic", "bedrock", "ollama"]),
    st.just("claude-test"),
    st.none() | intervals,
    tokens,
    st.lists(tries, max_size=4).map(tuple),
    st.none() | moments_us,
).map(CallTimes.as_json)
"""As a step keeps them."""


@st.composite
def records(draw: st.DrawFn) -> TurnRecord:
    """Of any turn: queued, running, parked, or ended in whatever way."""
    is_over = draw(st.booleans())
    status = draw(st.sampled_from(ENDED if is_over else UNFINISHED))
    steps = tuple(draw(_steps()))
    replies = [step.n for step in steps if step.kind == "reply"] or [0]
    calls = tuple(draw(_call(position, draw(st.sampled_from(replies)), is_over)) for position in range(draw(_some)))
    verdicts = tuple(
        draw(_verdict(position, reply_n, is_over)) for reply_n in replies for position in range(draw(_some))
    )
    error = {"type": "provider", "message": "busy", "error_id": "err_1"}
    made = turn(
        status=status,
        reason=draw(st.none() | st.sampled_from(["provider", "limits", "dead"])),
        input=SECRET,
        output_text=draw(st.none() | st.just(SECRET)),
        error=draw(st.none() | st.just(error)) if status in ("failed", "incomplete") else None,
        usage=draw(usages),
        patterns=draw(st.just(()) | st.just(({"id": "p1", "how": "matched"}, {"id": "p2", "how": "loaded"}))),
        completed_ms=draw(moments_ms) if is_over else None,
        held_by=draw(st.none() | st.just("worker-1")) if not is_over else None,
        fence=9,
        calls=calls,
    )
    return TurnRecord(
        turn=made,
        trace_id=TRACE_ID,
        parent_id=draw(st.none() | st.just(PARENT_ID)),
        claimed_us=draw(st.none() | moments_us),
        trace=draw(_traces(is_over)),
        steps=steps,
        verdicts=verdicts,
        later=tuple(draw(_later())),
    )


_some = st.integers(0, 3)


@st.composite
def _traces(draw: st.DrawFn, is_over: bool) -> TurnTrace:
    came_us = draw(st.none() | moments_us)
    numbers = sorted(draw(st.sets(fences, max_size=5)))
    ends = st.sampled_from(get_args(RunEnd))
    return TurnTrace(
        received_us=came_us,
        accepted_us=draw(moments_us) if came_us else draw(st.none() | moments_us),
        has_client_span=draw(st.booleans()),
        runs=tuple(
            WorkerRun(fence, f"worker-{fence}", draw(moments_us), draw(moments_us), draw(ends)) for fence in numbers
        ),
        failed_call=draw(st.none() | call_times),
        session=draw(st.none() | st.just({"turns": 3, "tokens": 500, "cost_usd": None})),
        stored=draw(intervals) if is_over and draw(st.booleans()) else None,
        error_stored=draw(st.none() | intervals),
    )


@st.composite
def _steps(draw: st.DrawFn) -> list[Step]:
    found: list[Step] = []
    for n in range(draw(st.integers(0, 7))):
        kind = draw(st.sampled_from(["matched", "reply", "waited", "events", "judged"]))
        has_times = draw(st.booleans())
        payload: dict[str, Any] = {"context": SECRET, "recalled": SECRET, "text": SECRET}
        if kind == "matched":
            kind = "matched" if n == 0 else "events"
            if has_times:
                payload["times"] = {"run": draw(fences), "at": draw(intervals).as_json()}
        elif has_times:
            payload["times"] = draw(call_times)
        if kind == "reply":
            said = {"model": "claude-test-1", "stop_reason": "end_turn", "usage": draw(usages).as_json()}
            payload = {**payload, **said}
        found.append(Step(n, kind, payload))  # type: ignore[arg-type]  # one of those of Step
    return found


@st.composite
def _call(draw: st.DrawFn, position: int, reply_n: int, is_over: bool) -> Call:
    statuses = [each for each in get_args(CallStatus) if not is_over or each not in OPEN_CALL]
    status = draw(st.sampled_from(statuses))
    is_open = status in OPEN_CALL
    trace = {
        **({"process": {"pid": 7, "at": draw(intervals).as_json()}} if draw(st.booleans()) else {}),
        **({"error_stored": draw(intervals).as_json()} if draw(st.booleans()) else {}),
    }
    return Call(
        id=f"toolu_{position}",
        name="look",
        arguments={"word": SECRET},
        position=position,
        reply_n=reply_n,
        status=status,
        sends=draw(_some),
        sent_ms=draw(st.none() | moments_ms),
        worker=draw(st.none() | st.just("worker-9")),
        started_ms=draw(moments_ms) if status == "running" else draw(st.none() | moments_ms),
        finished_ms=None if is_open else draw(moments_ms),
        content=None if is_open else SECRET,
        error_id=draw(st.none() | st.just(f"err_{position}")),
        ref=draw(st.none() | st.just("ref_1")),
        approval=draw(st.none() | st.sampled_from(get_args(Approval))),
        trace=draw(st.none() | st.just(trace)),
    )


@st.composite
def _verdict(draw: st.DrawFn, position: int, reply_n: int, is_over: bool) -> Verdict:
    statuses = [each for each in get_args(VerdictStatus) if not is_over or each not in OPEN_CALL]
    status = draw(st.sampled_from(statuses))
    is_open = status in OPEN_CALL
    return Verdict(
        reply_n=reply_n,
        position=position,
        name=f"judge-{position}",
        type="llm",
        status=status,
        sent_ms=draw(moments_ms),
        worker=draw(st.none() | st.just("worker-8")),
        started_ms=draw(moments_ms) if status == "running" else draw(st.none() | moments_ms),
        finished_ms=None if is_open else draw(moments_ms),
        score=draw(st.none() | st.floats(0, 1)),
        critique=SECRET,
        error=draw(st.none() | st.just(SECRET)),
        model=draw(st.none() | st.just("claude-judge")),
        usage=draw(usages),
    )


@st.composite
def _later(draw: st.DrawFn) -> list[TraceSpan]:
    found: list[TraceSpan] = []
    for attempt, at in enumerate(draw(st.lists(intervals, max_size=2, unique_by=lambda at: at.began_us))):
        tried = replace(DELIVERY, attempts=attempt, last_status=draw(st.none() | st.just(500)))
        told = of_attempt(tried, at, error=draw(st.none() | st.just("no answer")))
        found += told.spans if told else ()
    for version, at in enumerate(draw(st.lists(intervals, max_size=2))):
        level = draw(st.sampled_from([None, *get_args(Level)]))
        change = Change(version, "compressed", level, 3, 500, 50, by="small")
        summary = Summary(SECRET, "small", draw(usages), asked="small")
        found += of_compression(TracedTurn("turn_1", TRACE_ID), change, summary, at).spans
    return found


DELIVERY = Delivery(
    *("whd_1", "acme", "turn_1", "https://example.com/hook", None, SECRET, "pending", 1, AT_MS), trace_id=TRACE_ID
)
