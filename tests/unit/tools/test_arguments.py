import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.tools.arguments import coerced, offered

NOTE: Json = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "next": {"$ref": "#/$defs/note"}},
    "required": ["text"],
}
PROPERTIES: Json = {
    "count": {"type": "integer", "maximum": 100},
    "share": {"type": "number"},
    "name": {"type": "string"},
    "deep": {"type": "boolean"},
    "ids": {"type": "array", "items": {"type": "integer"}},
    "names": {"type": "array", "items": {"type": "string"}},
    "filter": {"type": "object", "properties": {"limit": {"type": "integer"}}},
    "maybe": {"type": ["integer", "null"]},
    "either": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
    "one": {"oneOf": [{"$ref": "#/$defs/note"}, {"type": "null"}]},
    "note": {"$ref": "#/$defs/note"},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "kind": {"type": "integer", "enum": [1, 2]},
    "all": {"allOf": [{"type": "integer"}, {"type": "integer", "minimum": 3}]},
}
SCHEMA: Json = {"type": "object", "properties": PROPERTIES, "$defs": {"note": NOTE}}
VALIDATOR = offered(ToolSpec("t", "", SCHEMA)).validator


@pytest.mark.cases(
    ("given_arguments", "wanted"),
    [
        ({"count": "5"}, {"count": 5}),
        ({"count": "3.0"}, {"count": 3}),
        ({"count": 3.0}, {"count": 3}),
        ({"count": " 1e2 "}, {"count": 100}),
        ({"share": "0.1"}, {"share": 0.1}),
        ({"share": "7"}, {"share": 7}),
        ({"name": 5}, {"name": "5"}),
        ({"name": True}, {"name": "true"}),
        ({"name": 2.5}, {"name": "2.5"}),
        ({"deep": "true"}, {"deep": True}),
        ({"deep": "False"}, {"deep": False}),
        ({"ids": "[1, 2]"}, {"ids": [1, 2]}),
        ({"ids": 7}, {"ids": [7]}),
        ({"ids": "7"}, {"ids": [7]}),
        ({"ids": ["1", 2.0]}, {"ids": [1, 2]}),
        ({"ids": '["1", "2"]'}, {"ids": [1, 2]}),
        ({"names": "a, b"}, {"names": ["a, b"]}),
        ({"names": [1, "b"]}, {"names": ["1", "b"]}),
        ({"filter": '{"limit": "5"}'}, {"filter": {"limit": 5}}),
        ({"maybe": "5"}, {"maybe": 5}),
        ({"maybe": "null"}, {"maybe": None}),
        ({"either": "5"}, {"either": 5}),
        ({"either": ["5", "6"]}, {"either": [5, 6]}),
        ({"one": '{"text": 1}'}, {"one": {"text": "1"}}),
        ({"note": {"text": 1, "next": {"text": 2}}}, {"note": {"text": "1", "next": {"text": "2"}}}),
        ({"map": {"a": "1"}}, {"map": {"a": 1}}),
        ({"kind": "2"}, {"kind": 2}),
        ({"all": "4"}, {"all": 4}),
        ({"count": None, "name": "x"}, {"name": "x"}),
        ({"kind": None}, {}),
        ({"either": None}, {}),
        ({"count": "5", "name": 1, "deep": "true"}, {"count": 5, "name": "1", "deep": True}),
    ],
)
def test_what_says_the_same_in_another_type_is_made_valid(given_arguments: Json, wanted: Json) -> None:
    before = copy.deepcopy(given_arguments)
    found = coerced(given_arguments, VALIDATOR)
    assert json.dumps(found) == json.dumps(wanted)
    assert VALIDATOR.is_valid(found)
    assert json.dumps(given_arguments) == json.dumps(before)


@pytest.mark.cases(
    "arguments",
    [
        {"count": "five"},
        {"count": 3.5},
        {"count": "007"},
        {"count": "+5"},
        {"count": "٥"},
        {"count": "1_000"},
        {"count": True},
        {"count": ""},
        {"share": "0.1000000000000000000000000001"},
        {"share": "1e999"},
        {"share": "NaN"},
        {"name": ["a"]},
        {"name": {"a": 1}},
        {"deep": 1},
        {"deep": "yes"},
        {"filter": '{"limit": 1, "limit": 2}'},
        {"filter": '{"limit": 1'},
        {"filter": "[" * 100_000},
        {"names": "[a"},
        {"map": {"a": None}},
        {"ids": [None]},
        {"either": "x"},
    ],
)
def test_what_would_lose_something_is_left_as_it_is(arguments: Json) -> None:
    found = coerced(arguments, VALIDATOR)
    assert found == arguments
    assert not VALIDATOR.is_valid(found)


def test_a_number_beyond_its_bounds_is_a_number_all_the_same() -> None:
    assert coerced({"count": "500"}, VALIDATOR) == {"count": 500}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.just("[1]"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "next", "limit"]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(PROPERTIES)), JSON_VALUES, max_size=3))
def test_whatever_the_model_sends_nothing_raises_and_valid_stays_what_it_is(arguments: Json) -> None:
    before: Any = copy.deepcopy(arguments)
    found = coerced(arguments, VALIDATOR)
    assert arguments == before
    if VALIDATOR.is_valid(arguments):
        assert found is arguments
    assert coerced(found, VALIDATOR) == found


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_that_was_quoted_is_that_number(number: float) -> None:
    assert coerced({"share": json.dumps(number)}, VALIDATOR) == {"share": number}


@pytest.mark.heavy
def test_thousands_of_quoted_numbers_are_converted_at_once() -> None:
    found = coerced({"ids": [str(number) for number in range(5000)]}, VALIDATOR)
    assert found == {"ids": list(range(5000))}
