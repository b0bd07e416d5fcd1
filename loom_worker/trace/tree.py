"""A trace as a tree in text: what took how long, what it cost, and what failed. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from loom_worker.core.values.json import Json
from loom_worker.trace import names

SHOWN = (
    *("gen_ai.tool.name", "gen_ai.evaluation.name", "llm.model", "loom.run.end", "loom.worker"),
    *("loom.patterns.count", "loom.approval", "http.response.status_code", "loom.turn.status", "loom.turn.reason"),
)
"""Attributes shown behind a span, the first two that it has."""


def lines(spans: Sequence[Json]) -> Iterator[str]:
    """A line for each span: name, when it began after the first, how long it took, status, tokens, cost.

    Args:
        spans: as ``GET /v1/turns/{turn_id}/trace`` lists them.
    """
    known = {span["span_id"] for span in spans}
    began = min((_moment(span["start_time"]) for span in spans), default=None)
    if began is None:
        return
    pending = [(span, 0) for span in spans if span["parent_id"] not in known]
    while pending:
        span, depth = pending.pop(0)
        yield _line(span, depth, (_moment(span["start_time"]) - began).total_seconds())
        below = [(child, depth + 1) for child in spans if child["parent_id"] == span["span_id"]]
        pending = below + pending


def _line(span: Json, depth: int, offset_s: float) -> str:
    attributes = span["attributes"]
    took = "goes on" if span["duration_ms"] is None else duration(span["duration_ms"] / 1000)
    name = f"{'  ' * depth}{span['name']}"
    parts = [f"{name:<28} +{duration(offset_s):>8} {took:>8}  {span['status']:<5}"]
    if attributes.get(names.TOKENS):
        parts.append(f"{attributes[names.TOKENS]:,} tokens")
    if attributes.get(names.COST):
        parts.append(f"${attributes[names.COST]:.4f}")
    parts += [str(attributes[name]) for name in SHOWN if name in attributes][:2]
    if span["status_message"]:
        parts.append(f"({span['status_message']})")
    return "  ".join(parts).rstrip()


def duration(seconds: float) -> str:
    """A time in the unit that suits it: ``340 us``, ``12.4 ms``, ``3.20 s``, ``4 min 5 s``."""
    if round(seconds, 6) < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if round(seconds, 4) < 1:
        return f"{seconds * 1000:.1f} ms"
    if round(seconds, 2) < 100:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
