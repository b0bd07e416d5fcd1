"""Request bodies as strict JSON: what a store or a model would choke on later is refused at the door."""

import json
import math
from collections.abc import Iterable
from typing import Any

from loom_worker.core.values.json import Json

NO_OBJECT = "the body must be a JSON object"
MAX_DEPTH = 32
"""Objects and arrays inside one another, the body itself counted."""
_MAX_INTEGER = 2**63 - 1
"""Beyond 64 bits a database column overflows and most JSON readers round."""


def parse_object(raw: bytes) -> Json:
    """Read a body that must be one JSON object.

    Raises:
        ValueError: says why not, in words for the client: not UTF-8, not JSON, NaN or Infinity, an integer beyond
            64 bits, a key twice, more than MAX_DEPTH levels, NUL or a lone surrogate in a key or a text.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the body is not UTF-8 (byte {error.start})") from error
    try:
        body: Any = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the body is not JSON: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise ValueError(f"the body is nested deeper than {MAX_DEPTH} levels") from error
    if not isinstance(body, dict):
        raise ValueError(NO_OBJECT)
    # Raw NULs are no JSON and raw surrogates no UTF-8, so only an escape can bring either in.
    _walk(body, has_escapes="\\u" in text)
    return body


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object names a key twice")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _whole(digits: str) -> int:
    # The length first: converting takes quadratic time, and Python itself refuses beyond 4,300 digits.
    number = int(digits) if len(digits) <= 20 else _MAX_INTEGER + 1
    if abs(number) > _MAX_INTEGER:
        raise ValueError("an integer does not fit 64 bits")
    return number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_int=_whole, parse_constant=_refuse_constant
)


def _walk(body: Json, *, has_escapes: bool) -> None:
    """Look at every level in turn; a stack of our own, for the limit is below Python's."""
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in _children(value) if _is_worth_a_look(item, has_escapes)]
        if not level:
            return
    if any(isinstance(item, dict | list) for item in level):
        raise ValueError(f"the body is nested deeper than {MAX_DEPTH} levels")


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return (*value.keys(), *value.values())
    return value if isinstance(value, list) else ()


def _is_worth_a_look(item: Any, has_escapes: bool) -> bool:
    if isinstance(item, dict | list):
        return True
    if has_escapes and isinstance(item, str):
        _check_text(item)
    return False


def _check_text(text: str) -> None:
    if "\0" in text:
        raise ValueError("a text holds NUL (\\u0000)")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("a text holds a lone surrogate") from error
