"""JSON as it enters and leaves, and the times inside it."""

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from loom_worker.core.text import storable

Json = dict[str, Any]

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def pointer_step(name: object) -> str:
    """A name as a step of a JSON pointer (RFC 6901)."""
    return str(name).replace("~", "~0").replace("/", "~1")


def pointer_name(step: str) -> str:
    """The name that a step of a JSON pointer stands for."""
    return step.replace("~1", "/").replace("~0", "~")


def strict_json(text: str) -> Any:
    """The value of a text of JSON that can be written again; ValueError: it is none (NaN, 1e999, a lone surrogate)."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as error:
        raise ValueError("too many objects and lists within each other") from error
    return value


def rfc3339(moment_ms: int | None) -> str | None:
    """Milliseconds since 1970 as ``2026-11-21T09:30:00.123Z``; None stays None."""
    if moment_ms is None:
        return None
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment_ms % 1000:03d}Z"


def rfc3339_us(moment_us: int) -> str:
    """Microseconds since 1970 as ``2026-11-21T09:30:00.123456Z``."""
    moment = datetime.fromtimestamp(moment_us // 1_000_000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment_us % 1_000_000:06d}Z"


def from_rfc3339(text: str) -> int | None:
    """A time of RFC 3339 in milliseconds since 1970, cut to the millisecond; None if the text is none."""
    parts = _MOMENT.fullmatch(text)
    if parts is None:
        return None
    day, time, fraction, offset = parts.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{time}{offset.upper()}")
        return (moment - _EPOCH) // timedelta(milliseconds=1) + int((fraction or ".")[1:4].ljust(3, "0"))
    except (ValueError, OverflowError):
        return None


def untagged(value: object) -> str:
    """JSON on one line, without the sign that begins a tag: it cannot end the data that it stands in."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


DEEPEST = 1_000
"""Python's encoder of JSON ends near there."""
_STRICT = json.JSONEncoder(allow_nan=False)
_ODD = re.compile(r"\\u0000|\\ud[89ab]..(?!\\ud[c-f])|(?<!\\ud[89ab]..)\\ud[c-f]")
"""NUL and lone surrogates in a text of JSON, and now and then what only looks like them."""


def json_text(value: object) -> str:
    """A value as it is stored: null for numbers that JSON has no text for, U+FFFD for what UTF-8 cannot hold."""
    try:
        text = _STRICT.encode(value)
    except ValueError:
        return _STRICT.encode(mended(value))
    return _STRICT.encode(mended(value)) if "\\u" in text and _ODD.search(text) else text


def mended(value: Any, *, most_depth: int = DEEPEST) -> Any:
    """The same value as JSON and UTF-8 can hold it; null for what is nested deeper than so many objects and lists."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if not isinstance(value, dict | list | tuple):
        return value
    if most_depth <= 0:
        return None
    if isinstance(value, dict):
        return {storable(str(name)): mended(item, most_depth=most_depth - 1) for name, item in value.items()}
    return [mended(item, most_depth=most_depth - 1) for item in value]
