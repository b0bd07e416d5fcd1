"""Cutting what is too long for where it goes, so that JSON stays JSON; for webhooks and lists alike. Pure."""

import json
from collections.abc import Callable
from typing import Any

from loom_worker.core.values.json import Json

_ELLIPSIS = "…"
FIELD_BYTES = 16 * 1024
"""Bytes of one long field in a list, as JSON: as much as of a tool's result the model is sent whole."""


def dump(value: Any) -> str:
    """JSON in which a lone surrogate, which no UTF-8 can hold, has become a question mark."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()


def size_bytes(written: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(written.encode())


def fit(value: Any, budget: int, shorten: Callable[[Any, int], Any]) -> Any:
    """Shorten what is longer than its budget of bytes."""
    return value if value is None or size_bytes(dump(value)) <= budget else shorten(value, budget)


def text(whole: str, budget: int) -> str:
    """The longest beginning that fits with its quotes, escapes and an ellipsis."""
    low, high = 0, min(len(whole), budget)
    while low < high:
        middle = (low + high + 1) // 2
        if size_bytes(dump(whole[:middle] + _ELLIPSIS)) <= budget:
            low = middle
        else:
            high = middle - 1
    return whole[:low] + _ELLIPSIS


def entries(whole: Json, budget: int) -> Json:
    """As many entries as fit, the shortest first; a text too long for what is left is cut, another value left out."""
    kept: Json = {}
    left = budget - len("{}")
    for name, value in sorted(whole.items(), key=lambda entry: size_bytes(dump(entry))):
        room = left - size_bytes(dump(name)) - len(":,")
        if isinstance(value, str) and room >= size_bytes(dump(_ELLIPSIS)):
            value = fit(value, room, text)
        if size_bytes(dump(value)) <= room:
            kept[name] = value
            left = room - size_bytes(dump(value))
    return {name: kept[name] for name in whole if name in kept}


def items(whole: list[Any], budget: int) -> list[Any]:
    """The first items, as many as fit."""
    left = budget - len("[]")
    for place, item in enumerate(whole):
        left -= size_bytes(dump(item)) + len(",")
        if left < 0:
            return whole[:place]
    return whole


def cut_mark(is_cut: bool, url: str) -> Json:
    """Members added to JSON whose fields were cut, as in a webhook: that they were, and where the whole is."""
    return {"truncated": True, "url": url} if is_cut else {}
