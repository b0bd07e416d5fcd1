"""One value as another type of JSON, only where it says exactly the same."""

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

NOTHING = object()
"""No value of that type says the same."""
MOST_CHARS = 1_000_000
"""Longer text is not read as JSON."""

# As JSON writes numbers: 007 and +5 are names of something, and no numbers.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False}


def converted(value: Any, kind: str) -> Any:
    """The value as this type of JSON Schema, NOTHING if there is none that says the same."""
    try:
        return _TO[kind](value)
    except (ValueError, KeyError, RecursionError):
        return NOTHING


def _whole(value: Any) -> int:
    if isinstance(value, float):
        return _integral(Decimal(value))
    return _integral(Decimal(_number_text(value)))


def _integral(number: Decimal) -> int:
    if not number.is_finite() or number != number.to_integral_value():
        raise ValueError(number)
    return int(number)


def _number(value: Any) -> int | float:
    text = _number_text(value)
    return int(text) if text.lstrip("-").isdecimal() else _exact(text)


def _number_text(value: Any) -> str:
    if not isinstance(value, str) or not _NUMBER.fullmatch(value.strip()):
        raise ValueError(value)
    return value.strip()


def _exact(text: str) -> float:
    """The number that is written so, if it is written back with the same digits."""
    number = float(text)
    if not math.isfinite(number) or Decimal(repr(number)) != Decimal(text):
        raise ValueError(text)
    return number


def _truth(value: Any) -> bool:
    return _WORDS[value.strip().lower() if isinstance(value, str) else ""]


def _text(value: Any) -> str:
    if not isinstance(value, int | float):
        raise ValueError(value)
    return json.dumps(value, allow_nan=False)


def _null(value: Any) -> None:
    if value != "null":
        raise ValueError(value)


def _list(value: Any) -> list[Any]:
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        parsed = _parsed(value)
        return parsed if isinstance(parsed, list) else [parsed]
    if value is None:
        raise ValueError(value)
    return [value]


def _object(value: Any) -> dict[str, Any]:
    parsed = _parsed(value)
    if not isinstance(parsed, dict):
        raise ValueError(value)
    return parsed


def _parsed(text: Any) -> Any:
    if not isinstance(text, str) or len(text) > MOST_CHARS:
        raise ValueError(text)
    return json.loads(text, object_pairs_hook=_distinct, parse_float=_exact, parse_constant=_refuse)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key stands there twice")
    return made


def _refuse(constant: str) -> None:
    raise ValueError(constant)


_TO: dict[str, Callable[[Any], Any]] = {
    "integer": _whole,
    "number": _number,
    "boolean": _truth,
    "string": _text,
    "null": _null,
    "array": _list,
    "object": _object,
}
