"""JSON of a model's own making, above all the arguments of its calls: what of it every store and wire can carry. Pure.

Python reads more than JSON is: ``1e999`` becomes an infinity that no request can hold, and a lone half of a character
reaches no encoder. What came in once is sent again with every later request, so one such value would end a session.
"""

import json
import math
from typing import Any

from loom_worker.core.values.json import Json
from loom_worker.llm.clean import clean

MOST_DEPTH = 100
"""Objects and lists within each other. A tool's own are a few deep; Python's encoder ends near a thousand."""
NOT_AN_OBJECT = "the arguments are not a JSON object"


def read_arguments(raw: str) -> tuple[Json, str | None]:
    """The arguments in a text of JSON, or ``{}`` and why there are none."""
    try:
        arguments = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return {}, _invalid(str(error))
    return checked(arguments)


def checked(arguments: object) -> tuple[Json, str | None]:
    """Arguments that were read from JSON already, or ``{}`` and why they cannot be taken."""
    if not isinstance(arguments, dict):
        return {}, NOT_AN_OBJECT
    flaw = flaw_of(arguments)
    return ({}, _invalid(flaw)) if flaw else (arguments, None)


def _invalid(why: str) -> str:
    return f"the arguments are not valid JSON: {why[:100]}"


def flaw_of(value: object) -> str | None:
    """Why a value cannot be written as JSON in UTF-8; None if it can."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        return str(error) or type(error).__name__
    # Brackets are counted first: hardly any value has so many, and those in strings do no harm.
    is_deep = text.count("[") + text.count("{") > MOST_DEPTH and _is_deep(value)
    return f"more than {MOST_DEPTH} objects and lists within each other" if is_deep else None


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [item for each in level for item in _items(each)]
    return any(isinstance(each, dict | list | tuple) for each in level)


def _items(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def sendable(arguments: Json) -> Json:
    """Arguments as a request can hold them; those of an older journal may have what is refused today.

    Numbers that are not finite and what is too deep become null, lone surrogates U+FFFD; all else is the very same.
    """
    if flaw_of(arguments) is None:
        return arguments
    return {clean(str(name)): _mended(value, MOST_DEPTH - 1) for name, value in arguments.items()}


def _mended(value: Any, depth: int) -> Any:
    """The same value, at most so many objects and lists deep."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(name)): _mended(item, depth - 1) for name, item in value.items()} if depth > 0 else None
    if isinstance(value, list | tuple):
        return [_mended(item, depth - 1) for item in value] if depth > 0 else None
    return value
