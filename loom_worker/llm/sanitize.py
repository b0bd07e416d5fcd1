"""Text and JSON of a model's own making: what every store and every request can carry. Pure.

Python reads more than JSON is: ``1e999`` becomes an infinity that no request can hold, and a lone surrogate reaches no
encoder. What came in once is sent again with every later request, so one such value would end a session.
"""

import json
import re
from typing import Any

from loom_worker.core.text import storable
from loom_worker.core.values.json import Json, mended

MOST_DEPTH = 100
"""Nested objects and lists. A tool's own are a few levels deep; Python's encoder ends near a thousand."""
NOT_AN_OBJECT = "the arguments are not a JSON object"
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""The names that Anthropic takes; a request that holds another one, also as a call of long ago, is refused."""
CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
UNNAMED = "unnamed_tool"
_NAMESPACES = re.compile(r"(?:functions|default_api|tools)[.:/]")
"""Prefixes that models trained on another maker's format put before a tool's name."""


def read_arguments(raw: str) -> tuple[Json, str | None]:
    """The arguments in a text of JSON, or ``{}`` and why there are none."""
    try:
        arguments = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return {}, _invalid(str(error))
    return checked(arguments)


def checked(arguments: object) -> tuple[Json, str | None]:
    """Arguments that were already read from JSON, or ``{}`` and why they cannot be accepted."""
    if not isinstance(arguments, dict):
        return {}, NOT_AN_OBJECT
    error = json_error(arguments)
    return ({}, _invalid(error)) if error else (arguments, None)


def tool_name(raw: str) -> str:
    """The name of a tool as every provider takes it; one that a model made up is changed as little as possible.

    Control words of another format (``functions.find<|channel|>``) are dropped: they are no part of the name.
    """
    if TOOL_NAME.fullmatch(raw):
        return raw
    name = _NAMESPACES.sub("", raw.partition("<|")[0].strip(), count=1)
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:128] or UNNAMED


def _invalid(why: str) -> str:
    return f"the arguments are not valid JSON: {why[:100]}"


def json_error(value: object) -> str | None:
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
    level: list[Any] = [value]
    for _ in range(MOST_DEPTH):
        dicts = [item for each in level if isinstance(each, dict) for item in each.values()]
        level = dicts + [item for each in level if isinstance(each, list | tuple) for item in each]
    return any(isinstance(each, dict | list | tuple) for each in level)


def sendable(arguments: Json) -> Json:
    """Arguments as a request can hold them; those of an older journal may contain what is refused today.

    Numbers that are not finite and what is nested too deeply become null, lone surrogates U+FFFD; nothing else changes.
    """
    if json_error(arguments) is None:
        return arguments
    return {storable(str(name)): mended(value, most_depth=MOST_DEPTH - 1) for name, value in arguments.items()}
