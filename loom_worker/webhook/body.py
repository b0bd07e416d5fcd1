"""The body of a webhook: the turn, cut so that every receiver's limit and parser takes it. Pure."""

import json
from collections.abc import Callable
from typing import Any

from loom_worker.values.json import Json, rfc3339
from loom_worker.values.turns import Turn

LIMIT_BYTES = 20_000
"""A body stays below it. Standard Webhooks 1.0.0, Payload size."""
_ENVELOPE_BYTES = 200
"""Kept free for ``type``, ``timestamp``, ``truncated`` and what holds them together."""
_ELLIPSIS = "…"


def completed(turn: Turn, *, now_ms: int, url: str) -> str:
    """Return the JSON text that tells how a finished turn ended: below 20 kB, without lone surrogates or NaN.

    What does not fit is cut, the least missed first: tool calls, patterns, metadata, the question, the error, and
    the answer last. Then ``data`` has ``truncated: true`` and the ``url`` at which the whole turn can be read.
    """
    event: Json = {"type": f"turn.{turn.status}", "timestamp": rfc3339(now_ms), "data": _clean(turn.as_json())}
    text = _dump(event)
    if _size(text) < LIMIT_BYTES:
        return text
    return _dump({**event, "data": _cut(event["data"], url)})


def _clean(value: Json) -> Json:
    """The same as a JSON parser would give it back, with null for NaN and infinities, which JSON has not."""
    cleaned: Json = json.loads(json.dumps(value), parse_constant=lambda _: None)
    return cleaned


def _dump(value: Any) -> str:
    """JSON in which a lone surrogate, which no UTF-8 can hold, has become a question mark."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()


def _size(text: str) -> int:
    return len(text.encode())


def _cut(data: Json, url: str) -> Json:
    room = LIMIT_BYTES - _ENVELOPE_BYTES
    data = {**data, "truncated": True, "url": url}
    for name, (budget, shorten) in _BUDGETS.items():
        if _size(_dump(data)) <= room:
            return data
        data[name] = _fit(data[name], budget, shorten)
    rest = _size(_dump({**data, "output_text": ""}))
    data["output_text"] = _fit(data["output_text"], room - rest, _text)
    return data


def _fit(value: Any, budget: int, shorten: Callable[[Any, int], Any]) -> Any:
    """Shorten what is longer than its budget of bytes."""
    return value if value is None or _size(_dump(value)) <= budget else shorten(value, budget)


def _text(text: str, budget: int) -> str:
    """The longest beginning that fits with its quotes, escapes and an ellipsis."""
    low, high = 0, min(len(text), budget)
    while low < high:
        middle = (low + high + 1) // 2
        if _size(_dump(text[:middle] + _ELLIPSIS)) <= budget:
            low = middle
        else:
            high = middle - 1
    return text[:low] + _ELLIPSIS


def _entries(entries: Json, budget: int) -> Json:
    """As many entries as fit, the shortest first; a text too long for what is left is cut, another value left out."""
    kept: Json = {}
    left = budget - len("{}")
    for name, value in sorted(entries.items(), key=lambda entry: _size(_dump(entry))):
        room = left - _size(_dump(name)) - len(":,")
        if isinstance(value, str) and room >= _size(_dump(_ELLIPSIS)):
            value = _fit(value, room, _text)
        if _size(_dump(value)) <= room:
            kept[name] = value
            left = room - _size(_dump(value))
    return {name: kept[name] for name in entries if name in kept}


def _items(items: list[Any], budget: int) -> list[Any]:
    """The first items, as many as fit."""
    left = budget - len("[]")
    for place, item in enumerate(items):
        left -= _size(_dump(item)) + len(",")
        if left < 0:
            return items[:place]
    return items


def _calls(calls: list[Json], budget: int) -> list[Json]:
    """The first calls, as many as fit, each with little of its arguments and result."""
    return _items([_slim(call) for call in calls], budget)


def _slim(call: Json) -> Json:
    return {
        **call,
        "arguments": _fit(call["arguments"], 300, _entries),
        "content": _fit(call["content"], 300, _text),
    }


_BUDGETS: dict[str, tuple[int, Callable[[Any, int], Any]]] = {
    "tool_calls": (3_000, _calls),
    "patterns": (500, _items),
    "metadata": (1_500, _entries),
    "input": (2_000, _text),
    "error": (1_500, _entries),
    "session_id": (1_000, _text),
    "reason": (500, _text),
    "trace_id": (500, _text),
    "retry_of": (500, _text),
}
"""Bytes of each field once something has to give, in that order; the answer has what is left, 7 kB at the least."""
