"""Spans as the tests need them."""

from dataclasses import replace
from typing import Any

from loom_worker.core.values.spans import SpanEvent, TraceSpan, span_id_of

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
START_US = 1_800_000_000_123_456


def span(number: int = 0, **fields: Any) -> TraceSpan:
    """A call of a model that took a second, and more or less of anything."""
    made = TraceSpan(
        trace_id=TRACE_ID,
        span_id=span_id_of("turn_1", "reply", str(number)),
        parent_id=span_id_of("turn_1"),
        name="turn.reply",
        start_us=START_US,
        end_us=START_US + 1_000_000,
        attributes={
            "gen_ai.request.model": "claude-sonnet-4-5-20250929",
            "gen_ai.usage.input_tokens": 1200,
            "turn.id": "turn_01HZX3K7Q9A0000000000000AB",
            "is_final": True,
            "cost_usd": 0.25,
            "tools": ["look", "find"],
        },
        events=(SpanEvent("first token", START_US + 200_000, {"after_ms": 200.0}),),
        status="OK",
        kind="client",
    )
    return replace(made, **fields)
