from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest

from loom_worker.core.errors import BadFile
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Rate, Tool
from loom_worker.tools.declare import derived, parameters, tool
from tests.support.callers import CALLER


def everything(
    text: str,
    count: Annotated[int, "How many."],
    unit: Literal["km", "mi"],
    caller: Caller,
    ratio: float = 0.5,
    deep: bool = False,
    anything: Any = None,
    things: list[Any] | None = None,
    names: list[str] | None = None,
    sizes: dict[str, int] | None = None,
    whole: dict[Any, Any] | None = None,
    bare: list = [1],  # noqa: B006  # as users write it
    old: Optional[int] = None,  # noqa: UP045
    level: Literal[1, 2, "max"] = 1,
    either: int | str = 3,
    which: Annotated[Literal[1, 2] | None, 7, "Which one."] = None,
) -> str:
    return ""


PROPERTIES: dict[str, Json] = {
    "text": {"type": "string"},
    "count": {"type": "integer", "description": "How many."},
    "unit": {"type": "string", "enum": ["km", "mi"]},
    "ratio": {"type": "number", "default": 0.5},
    "deep": {"type": "boolean", "default": False},
    "anything": {},
    "things": {"anyOf": [{"type": "array", "items": {}}, {"type": "null"}]},
    "names": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
    "sizes": {"anyOf": [{"type": "object", "additionalProperties": {"type": "integer"}}, {"type": "null"}]},
    "whole": {"anyOf": [{"type": "object", "additionalProperties": {}}, {"type": "null"}]},
    "bare": {"type": "array", "default": [1]},
    "old": {"type": ["integer", "null"]},
    "level": {"enum": [1, 2, "max"], "default": 1},
    "either": {"type": ["integer", "string"], "default": 3},
    "which": {"anyOf": [{"type": "integer", "enum": [1, 2]}, {"type": "null"}], "description": "Which one."},
}


def test_every_type_has_its_schema_and_the_caller_has_none() -> None:
    schema = derived(everything)
    assert schema["properties"] == PROPERTIES
    assert schema["required"] == ["text", "count", "unit"]
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    assert parameters(everything)[1] == "caller"


def test_a_schema_is_made_anew_each_time() -> None:
    derived(everything)["properties"]["text"]["type"] = "number"
    assert derived(everything)["properties"] == PROPERTIES


def no_type(a) -> None: ...  # type: ignore[no-untyped-def]
def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def positional(a: int, /) -> None: ...
def starred(*a: int) -> None: ...
def others(**a: int) -> None: ...
def odd_type(a: complex) -> None: ...
def odd_key(a: dict[int, str]) -> None: ...
def odd_default(a: object = object()) -> None: ...


@pytest.mark.cases(
    ("function", "said"),
    [
        (no_type, "parameter 'a' has no type: annotate it with one of str, int"),
        (unknown, "'Nowhere' is not defined"),
        (positional, "without / or"),
        (starred, "without / or"),
        (others, "name each argument, or give the tool a schema="),
        (odd_type, "parameter 'a': no schema for complex; use str"),
        (odd_key, "no schema for dict"),
        (odd_default, "its default is not a JSON value; use None"),
    ],
)
def test_a_parameter_without_a_schema_is_refused_with_what_to_do(function: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        derived(function)


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@tool
def double(n: Annotated[int, "What to double."], caller: Caller, times: int = 1) -> str:
    """Double a number.

    More than once if asked.
    """
    return f"{n * 2**times} for {caller.session_id}"


def test_a_typed_function_becomes_a_tool() -> None:
    assert isinstance(double, Tool)
    assert double.spec.name == "double"
    assert double.spec.description == "Double a number.\n\nMore than once if asked."
    assert double.spec.input_schema["properties"] == {
        "n": {"type": "integer", "description": "What to double."},
        "times": {"type": "integer", "default": 1},
    }
    assert double.run({"n": 3}, CALLER) == "6 for s1"
    assert double.run({"n": 3, "times": 2}, CALLER) == "12 for s1"


def test_what_a_declaration_does_not_say_is_the_careful_choice() -> None:
    assert (double.is_read_only, double.is_idempotent, double.is_repeatable) == (False, False, False)
    assert (double.needs_approval, double.is_bounded, double.timeout_s, double.rate) == (False, False, 30.0, None)
    assert double.origin is None


def declared(**options: Any) -> Tool:
    def act(n: int = 0) -> int:
        """Act."""
        return n

    return tool(**options)(act)


@pytest.mark.cases(
    ("options", "flags"),
    [
        ({"read_only": True}, (True, True, True)),
        ({"read_only": True, "repeatable": False}, (True, True, False)),
        ({"read_only": True, "idempotent": False}, (True, False, False)),
        ({"idempotent": True}, (False, True, False)),
        ({"idempotent": True, "repeatable": True}, (False, True, True)),
    ],
)
def test_one_promise_follows_from_another_unless_it_is_given(
    options: dict[str, bool], flags: tuple[bool, bool, bool]
) -> None:
    made = declared(**options)
    assert (made.is_read_only, made.is_idempotent, made.is_repeatable) == flags


def test_a_declaration_says_the_rest() -> None:
    made = declared(name="act-now", needs_approval=True, bounded=True, timeout_s=5, rate="30/m")
    assert (made.spec.name, made.needs_approval, made.is_bounded, made.timeout_s) == ("act-now", True, True, 5.0)
    assert made.rate == Rate(30, 60.0)
    assert (declared(rate="10/s").rate, declared(rate="500/h").rate) == (Rate(10, 1.0), Rate(500, 3600.0))


def test_a_schema_of_ones_own_takes_the_place_of_the_types() -> None:
    @tool(schema={"type": "object", "properties": {"n": {"type": "integer"}, "a-b": {}}, "required": ["n"]})
    def act(n, **others):  # type: ignore[no-untyped-def]
        """Act."""
        return n, others

    assert act.run({"n": 1, "a-b": 2}, CALLER) == (1, {"a-b": 2})


def test_an_async_function_is_run_to_its_end() -> None:
    @tool
    async def later(n: int, whose: Caller) -> str:
        """Come later."""
        return f"{n} {whose.turn_id}"

    assert later.run({"n": 1}, CALLER) == "1 turn_1"


def silent(n: int) -> int:
    return n


def loud(n: int) -> int:
    """Act."""
    return n


@pytest.mark.cases(
    ("function", "options", "said"),
    [
        (silent, {}, "write a docstring"),
        (loud, {"name": "a b"}, "give it another with name="),
        (loud, {"rate": "10 per second"}, "as in 10/s, 30/m, 500/h"),
        (loud, {"rate": "0/s"}, "as in 10/s"),
        (loud, {"rate": 10}, "rate=10"),
        (loud, {"timeout_s": 0}, "seconds, more than 0"),
        (loud, {"timeout_s": "5"}, "seconds, more than 0"),
        (loud, {"readonly": True}, "there is no option 'readonly'; did you mean read_only?"),
        (loud, {"zzz": True}, "there are name, schema, read_only"),
        (loud, {"bounded": "yes"}, "bounded must be True or False"),
        (loud, {"schema": {"type": "string"}}, "whose type is object"),
        (loud, {"schema": [1]}, "not an object"),
        (loud, {"schema": {"type": "object", "properties": [1]}}, "properties must be an object"),
        (loud, {"schema": {**SCHEMA, "properties": {"m": {}}}}, "the function has no parameter 'm'"),
        (loud, {"schema": {**SCHEMA, "required": []}}, "parameter 'n' has no default, so list it under required"),
    ],
)
def test_a_bad_declaration_says_file_line_and_what_to_do(function: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadFile) as caught:
        tool(**options)(function)
    line = inspect.getsourcelines(function)[1]
    assert str(caught.value).startswith(f"{Path(__file__)}:{line}: tool {function.__name__!r}: ")
    assert said in str(caught.value)


@pytest.mark.cases("thing", [print, partial(loud, 1), int, 7])
def test_only_a_function_can_be_a_tool(thing: Any) -> None:
    with pytest.raises(BadFile, match="decorate a def"):
        tool(thing)
