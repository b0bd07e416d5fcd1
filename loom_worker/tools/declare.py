"""How a user declares a tool: one decorator over one typed function (docs/tools.md)."""

import inspect
import json
import math
import re
import types
from collections.abc import Callable, Coroutine, Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    TypedDict,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from loom_worker.backends.tool_schemas import normal
from loom_worker.core.errors import BadFile
from loom_worker.core.text import did_you_mean
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Rate, Tool

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


__all__ = ["Caller", "Tool", "tool"]

Function = Callable[..., object]
_RATE = re.compile(r"([1-9][0-9]{0,8})/([smh])")
_PERIOD_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Options(TypedDict, total=False):
    """The options of a declaration; the defaults are the cautious choice."""

    name: str
    """The tool's name; default: the function's."""
    schema: Mapping[str, object]
    """JSON Schema of the arguments (an object), used instead of the one derived from the function's types."""
    read_only: bool
    """True: the tool changes nothing outside Loom, so read-only agents may use it."""
    idempotent: bool
    """True: the call may run again after its worker died. Default: the value of read_only."""
    repeatable: bool
    """True: the same call again in one turn gets the first one's result. Default: true for a tool that is both
    read_only and idempotent."""
    needs_approval: bool
    """True: a person must approve each call."""
    bounded: bool
    """True: it ends within milliseconds for any arguments, so it runs in the worker and not in a child process."""
    timeout_s: float
    """After so many seconds its process is killed; 30 by default, and never more than LOOM_TOOL_TIMEOUT_S."""
    rate: str
    """How often it may be called, by all workers together: ``10/s``, ``30/m``, ``500/h``."""


@overload
def tool(function: Function, /) -> Tool: ...
@overload
def tool(**options: Unpack[Options]) -> Callable[[Function], Tool]: ...
def tool(function: Function | None = None, /, **options: Unpack[Options]) -> Tool | Callable[[Function], Tool]:
    """Make a tool of a function: its docstring becomes the description, its types become the schema.

    A parameter annotated ``Caller`` receives the caller; the model does not see it. The function returns text or any
    JSON value; it raises ToolFailed for a failure that the model should read about.

    Raises:
        BadFile: the declaration is wrong; the text names the file, the line and how to fix it.
    """
    if function is not None:
        return _declared(function, {})
    return lambda decorated: _declared(decorated, options)


def _declared(function: Function, options: Options) -> Tool:
    try:
        if not inspect.isfunction(inspect.unwrap(function)):
            raise ValueError("only a function can be a tool: decorate a def")
        _check(options)
        is_read_only = options.get("read_only", False)
        is_idempotent = options.get("idempotent", is_read_only)
        rate = _RATE.fullmatch(options["rate"]) if "rate" in options else None
        return Tool(
            _spec(function, options),
            _runner(function),
            is_idempotent=is_idempotent,
            is_bounded=options.get("bounded", False),
            is_read_only=is_read_only,
            is_repeatable=options.get("repeatable", is_read_only and is_idempotent),
            needs_approval=options.get("needs_approval", False),
            timeout_s=float(options.get("timeout_s", 30.0)),
            rate=None if rate is None else Rate(int(rate[1]), _PERIOD_S[rate[2]]),
        )
    except (ValueError, TypeError) as error:
        code = getattr(inspect.unwrap(function), "__code__", None)
        where = f"{code.co_filename}:{code.co_firstlineno}" if code else "a tool's file"
        raise BadFile(f"{where}: tool {getattr(function, '__name__', function)!r}: {error}") from error


def _check(options: Options) -> None:
    for option, value in options.items():
        if option not in Options.__annotations__:
            advice = did_you_mean(option, Options.__annotations__) or f"there are {', '.join(Options.__annotations__)}"
            raise ValueError(f"there is no option {option!r}; {advice}")
        if Options.__annotations__[option] is bool and not isinstance(value, bool):
            raise ValueError(f"{option} must be True or False")
        if option == "timeout_s" and not (type(value) in (int, float) and 0 < cast(float, value) < math.inf):
            raise ValueError(f"timeout_s={value!r}: seconds, more than 0")
        if option == "rate" and not (isinstance(value, str) and _RATE.fullmatch(value)):
            raise ValueError(f"rate={value!r}: write calls per second, minute or hour, as in 10/s, 30/m, 500/h")


def _spec(function: Function, options: Options) -> ToolSpec:
    name = options.get("name", function.__name__)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"a name is 1-64 of A-Z a-z 0-9 _ -, {name!r} is not; give it another with name=")
    description = inspect.getdoc(function)
    if not description:
        raise ValueError("write a docstring: the model chooses its tools by it")
    schema = options.get("schema")
    if schema is None:
        return ToolSpec(name, description, derived(function))
    _check_fit(function, schema)
    return ToolSpec(name, description, dict(schema))


def _check_fit(function: Function, schema: Mapping[str, object]) -> None:
    """Check that a handwritten schema allows exactly what the function accepts."""
    taken, _ = parameters(function)
    schema = normal(schema)
    properties, required = schema.get("properties", {}), schema.get("required", ())
    if not isinstance(properties, Mapping) or not isinstance(required, list | tuple):
        raise ValueError("schema: properties must be an object and required a list")
    takes_any = any(each.kind is each.VAR_KEYWORD for each in taken.values())
    if foreign := [name for name in properties if name not in taken and not takes_any]:
        raise ValueError(f"schema: the function has no parameter {foreign[0]!r}; add it, or **others")
    needed = [name for name, each in taken.items() if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    if missing := [name for name in needed if name not in required]:
        raise ValueError(f"schema: parameter {missing[0]!r} has no default, so list it under required")


def _runner(function: Function) -> Callable[[Json, Caller], object]:
    _, caller_name = parameters(function)

    def run(arguments: Json, caller: Caller) -> object:
        return function(**(arguments if caller_name is None else {**arguments, caller_name: caller}))

    def run_coroutine(arguments: Json, caller: Caller) -> object:
        import asyncio  # takes 40 ms, and only async functions need it

        return asyncio.run(cast(Coroutine[object, object, object], run(arguments, caller)))

    return run_coroutine if inspect.iscoroutinefunction(function) else run
