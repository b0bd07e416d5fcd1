"""The JSON Schema of a function's parameters, from their types."""

import inspect
import json
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller

_PLAIN: dict[object, Json] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list: {"type": "array"},
    dict: {"type": "object"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}
_KNOWN = "str, int, float, bool, list, dict, Literal, Optional and Annotated"


def parameters(function: Callable[..., object]) -> tuple[dict[str, inspect.Parameter], str | None]:
    """The parameters that the model fills in, and the name of the one annotated ``Caller``, if there is one.

    Raises:
        ValueError: an annotation cannot be read, or a parameter cannot be passed by name.
    """
    hints, found = _hints(function), dict(inspect.signature(function).parameters)
    for name, parameter in found.items():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise ValueError(f"parameter {name!r}: arguments are passed by name; write it without / or *")
    callers = [name for name in found if hints.get(name) is Caller]
    for name in callers:
        del found[name]
    return found, callers[0] if callers else None


def derived(function: Callable[..., object]) -> Json:
    """The JSON Schema that follows from the types and defaults of a function's parameters; others are forbidden.

    Raises:
        ValueError: a parameter has no type, a type that has no schema, or a default that is not JSON.
    """
    hints, properties, required = _hints(function), {}, []
    for name, parameter in parameters(function)[0].items():
        if parameter.kind is parameter.VAR_KEYWORD:
            raise ValueError(f"parameter '**{name}': name each argument, or give the tool a schema=")
        if name not in hints:
            raise ValueError(f"parameter {name!r} has no type: annotate it with one of {_KNOWN}")
        properties[name] = _schema(hints[name], name)
        if parameter.default is parameter.empty:
            required.append(name)
        elif parameter.default is not None:
            try:
                properties[name]["default"] = json.loads(json.dumps(parameter.default, allow_nan=False))
            except (TypeError, ValueError) as error:
                raise ValueError(f"parameter {name!r}: its default is not a JSON value; use None") from error
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _hints(function: Callable[..., object]) -> dict[str, object]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise ValueError(f"an annotation cannot be read: {error}") from error


def _schema(hint: object, name: str) -> Json:
    """The schema of one type; always a new dict, which the caller may add to."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        texts = [extra for extra in inner[1:] if isinstance(extra, str)]
        return _schema(inner[0], name) | ({"description": texts[0]} if texts else {})
    if origin is Literal:
        kinds = {type(value) for value in inner}
        # With the type in the schema, "5" for Literal[5] is converted to the number.
        return (dict(_PLAIN[kinds.pop()]) if len(kinds) == 1 else {}) | {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        parts = [_schema(each, name) for each in inner]
        is_plain = all(set(part) == {"type"} for part in parts)
        return {"type": [part["type"] for part in parts]} if is_plain else {"anyOf": parts}
    if origin is list:
        return {"type": "array", "items": _schema(inner[0], name)}
    if origin is dict and inner[0] in (str, Any):
        return {"type": "object", "additionalProperties": _schema(inner[1], name)}
    try:
        return dict(_PLAIN[hint])
    except (KeyError, TypeError) as error:
        shown = getattr(hint, "__name__", hint)
        raise ValueError(f"parameter {name!r}: no schema for {shown}; use {_KNOWN}, or give schema=") from error
