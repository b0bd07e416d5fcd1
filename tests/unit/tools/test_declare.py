from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest

from loom_worker.core.errors import BadFile
from loom_worker.core.values.tools import Caller, Rate, Tool
from loom_worker.tools.declare import tool
from tests.support.callers import CALLER

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
