"""What a tool returned, as text: any JSON value is encoded, any other value is written as Python does."""

import dataclasses
import json
import math
from collections.abc import Mapping

JSON = "application/json"
PLAIN = "text/plain"


def encoded(result: object) -> tuple[str, str]:
    """Text and content type of a result: text stays as it is, whatever else is JSON.

    Not a number and infinity become null, keys become text; what JSON has no word for is written as ``str`` does.

    Raises:
        Exception: whatever the ``__str__`` of a foreign object raises.
    """
    if isinstance(result, str):
        return result, (JSON if _is_json(result) else PLAIN)
    try:
        return _dumps(result), JSON
    except (TypeError, ValueError, RecursionError):  # keys that are no text, NaN, a value that contains itself
        return _tamed_dumps(result)


def _tamed_dumps(result: object) -> tuple[str, str]:
    try:
        return _dumps(_tamed(result)), JSON
    except (TypeError, ValueError, RecursionError):
        return str(result), PLAIN


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    """JSON for what the encoder does not know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, set | frozenset):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else str(value)


def _tamed(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key if isinstance(key, str) else str(key): _tamed(inner) for key, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_tamed(inner) for inner in value]
        case str() | int() | float() | None:
            return value
    return _tamed(_plain(value))


def _is_json(text: str) -> bool:
    if text[:1] + text[-1:] not in ("{}", "[]"):
        return False
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(constant)
