"""Turns as JSON, as tests of the front need them."""

from typing import Any

Json = dict[str, Any]
USAGE = {"input_tokens": 3, "output_tokens": 2, "cache_read_tokens": 0, "cache_write_tokens": 0}


def turn(status: str = "completed", **fields: Any) -> Json:
    return {
        "id": "turn_1",
        "session_id": "s",
        "status": status,
        "reason": None,
        "input": "hello",
        "output_text": None,
        "tool_calls": [],
        "metadata": {},
        "error": None,
        "usage": USAGE,
        "created_at": "2026-11-21T09:30:00.000Z",
        "started_at": "2026-11-21T09:30:01.000Z",
        "completed_at": None,
        **fields,
    }


def call(call_id: str = "toolu_1", approval: str | None = "waiting", status: str = "pending") -> Json:
    return {"id": call_id, "name": "pay", "arguments": {"amount": 7}, "approval": approval, "status": status}
