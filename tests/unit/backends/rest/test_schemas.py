import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry

from loom_worker.backends.rest.document import MAX_VALUES, Inliner
from loom_worker.core.errors import BadFile
from tests.unit.backends.rest.documents import document


def inlined(schema: Any, *, version: str = "3.1.0", **schemas: Any) -> dict[str, Any]:
    return Inliner(document({}, version=version, components={"schemas": schemas})).schema(schema, "#/here")


def ref(name: str, **beside: Any) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}", **beside}


def test_references_are_written_out_at_every_depth() -> None:
    found = inlined(
        {"type": "object", "properties": {"a": {"type": "array", "items": ref("A")}}, "anyOf": [ref("B")]},
        A={"type": "object", "additionalProperties": ref("B")},
        B={"type": "integer"},
    )
    integer = {"type": "integer"}
    assert found == {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "object", "additionalProperties": integer}}},
        "anyOf": [integer],
    }


def test_a_schema_that_contains_itself_takes_anything_where_it_begins_anew() -> None:
    tree = {"type": "object", "properties": {"name": {"type": "string"}, "children": {"items": ref("Tree")}}}
    found = inlined(ref("Tree"), Tree=tree)
    assert found["properties"]["children"]["items"] == {"description": "again as Tree above"}
    check = Draft202012Validator(found)
    assert check.is_valid({"name": "a", "children": [{"name": "b", "children": []}]})
    assert not check.is_valid({"name": 1})


def test_what_stands_beside_a_reference_counts_from_3_1_on() -> None:
    sized = ref("A", minLength=3)
    assert not Draft202012Validator(inlined(sized, A={"type": "string"})).is_valid("ab")
    assert inlined(sized, version="3.0.3", A={"type": "string"}) == {"type": "string"}


@pytest.mark.cases(
    ("schema", "expected"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "string", "nullable": True, "enum": ["a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        ({"nullable": True, "allOf": [{}]}, {"anyOf": [{"allOf": [{}]}, {"type": "null"}]}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}),
        ({"type": "integer", "exclusiveMinimum": 2}, {"type": "integer", "exclusiveMinimum": 2}),
        ({"type": "string", "required": True}, {"type": "string"}),
        ({"type": "string", "pattern": r"\p{L}+"}, {"type": "string"}),
        ({"type": "string", "example": "x", "xml": {}, "x-own": 1, "deprecated": True}, {"type": "string"}),
        ({"description": "two\n  lines"}, {"description": "two lines"}),
        (True, {}),
        (False, {"not": {}}),
    ],
)
def test_both_dialects_become_plain_json_schema(schema: Any, expected: Any) -> None:
    assert inlined(schema, version="3.0.3") == expected


def test_what_is_read_only_is_neither_offered_nor_demanded() -> None:
    found = inlined(
        {
            "required": ["id", "name", "made"],
            "properties": {"id": {"readOnly": True}, "name": {"type": "string"}},
            "allOf": [ref("Dated")],
        },
        Dated={"required": ["made", "id"], "properties": {"made": ref("Time")}},
        Time={"type": "string", "readOnly": True},
    )
    assert found == {
        "required": ["name"],
        "properties": {"name": {"type": "string"}},
        "allOf": [{"required": [], "properties": {}}],
    }


def test_a_few_lines_cannot_mean_a_million_schemas() -> None:
    doubling = {f"S{n}": {"properties": {"a": ref(f"S{n + 1}"), "b": ref(f"S{n + 1}")}} for n in range(12)}
    with pytest.raises(BadFile, match=f"more than {MAX_VALUES} schemas"):
        inlined(ref("S0"), **doubling, S12={})


def test_a_deep_schema_is_refused_with_its_place() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"items": deep}
    with pytest.raises(BadFile, match=r"api\.json: #/here/items/.*: nested deeper than 40"):
        inlined(deep)


def test_a_composition_of_itself_ends() -> None:
    found = inlined(ref("A"), A={"allOf": [ref("B"), ref("B")]}, B={"allOf": [ref("A")], "type": "object"})
    again = {"description": "again as A above"}
    assert found == {"allOf": [{"allOf": [again], "type": "object"}] * 2}


@pytest.mark.cases("schema", [5, "string", [], {"properties": []}, {"allOf": {}}, {"items": 3}, {"anyOf": [1]}])
def test_what_is_no_schema_is_refused_with_its_place(schema: Any) -> None:
    with pytest.raises(BadFile, match=r"api\.json: #/here"):
        inlined(schema)


keywords = st.sampled_from(
    "type properties items allOf required enum nullable pattern exclusiveMinimum minimum readOnly $ref".split()
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["string", "#/components/schemas/A", "("]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=4),
    max_leaves=12,
)


@given(json_values, json_values)
def test_no_nonsense_makes_it_fail_in_another_way(schema: Any, referred: Any) -> None:
    try:
        found = inlined(schema, A=referred)
    except BadFile:
        return
    with contextlib.suppress(SchemaError):
        Draft202012Validator.check_schema(found)
        list(Draft202012Validator(found, registry=Registry()).iter_errors({}))
