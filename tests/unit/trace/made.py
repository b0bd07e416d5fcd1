"""Turns as their traces need them, small and with round times."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from loom_worker.core.values.calls import Call
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import Verdict
from loom_worker.core.values.spans import TraceSpan
from loom_worker.core.values.traces import CallTimes, Interval, Try, TurnTrace, WorkerRun
from loom_worker.core.values.turns import Step, Turn
from loom_worker.store.turn_records import TurnRecord

AT_MS = 1_800_000_000_000
AT_US = AT_MS * 1000
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"
USAGE: Json = {
    "input_tokens": 100,
    "output_tokens": 20,
    "cache_read_tokens": 30,
    "cache_write_tokens": 0,
    "cost_usd": 0.5,
    "llm_calls": 1,
}
ACCEPTED = TurnTrace(AT_US, AT_US + 1000)
"""Received, and stored a millisecond later."""


def turn(**fields: Any) -> Turn:
    """One that has ended well, a second after it began."""
    usual = {"status": "completed", "completed_ms": AT_MS + 1000, "input": "What?", "output_text": "This."}
    return Turn(
        **{
            "id": "turn_1",
            "lane": "lane_1",
            "session_id": "s1",
            "workspace": "acme",
            "agent": "helper",
            "seq": 3,
            "created_ms": AT_MS,
            **usual,
            **fields,
        }
    )


def record(trace: TurnTrace = ACCEPTED, **fields: Any) -> TurnRecord:
    """Of an ended turn that came by HTTP, from a client without a trace of its own."""
    usual = {"turn": turn(), "trace_id": TRACE_ID, "parent_id": PARENT_ID, "claimed_us": AT_US + 5000}
    return TurnRecord(trace=trace, **{**usual, **fields})


def run(fence: int = 1, **fields: Any) -> WorkerRun:
    """From 5 to 900 ms after the turn began, unless said otherwise."""
    return replace(WorkerRun(fence, f"worker-{fence}", AT_US + 5000, AT_US + 900_000, "ended"), **fields)


def times(*tries: Try, fence: int = 1, **fields: Any) -> Json:
    """Of asking a model for a reply, as a step keeps them."""
    return CallTimes(fence, "anthropic", "claude-test", tries=tries, **fields).as_json()


def tried(began_ms: int, ended_ms: int, error_type: str | None = None, error: str = "") -> Try:
    """A request to the model, so long after the turn began."""
    return Try(between(began_ms, ended_ms), error_type, error)


def between(began_ms: int, ended_ms: int) -> Interval:
    """From and until so long after the turn began."""
    return Interval(AT_US + began_ms * 1000, AT_US + ended_ms * 1000)


ENDED = replace(ACCEPTED, runs=(run(),), stored=between(890, 900))
"""It ran once, and its end was stored."""


def reply(n: int, known: Json | None = None, **fields: Any) -> Step:
    """A reply of the model."""
    usual = {"text": "This.", "model": "claude-test-1", "stop_reason": "end_turn", "usage": USAGE}
    return Step(n, "reply", {**usual, **({"times": known} if known else {}), **fields})


def waited(n: int, known: Json | None = None) -> Step:
    """The provider was too busy."""
    return Step(n, "waited", {"why": "busy", **({"times": known} if known else {})})


def call(position: int = 0, **fields: Any) -> Call:
    """A tool call that ran from 100 to 200 ms after the turn began."""
    usual: Json = {
        "status": "completed",
        "sends": 1,
        "sent_ms": AT_MS + 90,
        "worker": "worker-9",
        "started_ms": AT_MS + 100,
        "finished_ms": AT_MS + 200,
    }
    known = {"id": f"toolu_{position}", "name": "look", "arguments": {"n": position}, "position": position}
    return Call(**{**known, "reply_n": 1, **usual, **fields})


def verdict(position: int = 0, **fields: Any) -> Verdict:
    """One that was given from 300 to 400 ms after the turn began."""
    usual: Json = {"reply_n": 1, "name": f"judge-{position}", "type": "llm", "status": "scored", "score": 0.5}
    known = {"sent_ms": AT_MS + 290, "started_ms": AT_MS + 300, "finished_ms": AT_MS + 400, "worker": "worker-8"}
    return Verdict(position=position, **{**usual, **known, **fields})


def named(spans: Sequence[TraceSpan], name: str) -> list[TraceSpan]:
    """The spans of one name, in order."""
    return [span for span in spans if span.name == name]


def one(spans: Sequence[TraceSpan], name: str) -> TraceSpan:
    """The only span of its name."""
    (found,) = named(spans, name)
    return found


def parent_of(spans: Sequence[TraceSpan], span: TraceSpan) -> str | None:
    """The name of a span's parent; None if no span is."""
    return next((each.name for each in spans if each.span_id == span.parent_id), None)
