from typing import Annotated, Any, Literal, Optional

import pytest

from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller
from loom_worker.tools.declare import derived, parameters


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
def unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
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
