import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry

from loom_worker.backends.rest.document import MAX_BYTES, MAX_VALUES, MAX_YAML_BYTES, Inliner, OpenApiFile, read
from loom_worker.core.errors import BadFile
from tests.unit.backends.rest.documents import document, read_back, written


def test_json_and_yaml_are_read_alike(tmp_path: Path) -> None:
    in_yaml = "openapi: 3.1\ninfo: {title: T}\npaths:\n  /a:\n    get: {responses: {200: {description: ok}}}\n"
    assert read_back(tmp_path, in_yaml, "api.yaml").root["paths"].keys() == {"/a"}
    assert read_back(tmp_path, {"openapi": "3.0.3", "paths": {"/a": {}}}).root["paths"].keys() == {"/a"}


@pytest.mark.cases(
    ("root", "name", "reason"),
    [
        ({"swagger": "2.0"}, "api.json", "version 3.0, 3.1 or 3.2, found none"),
        ({"openapi": "4.0.0"}, "api.json", "found 4.0.0"),
        ([], "api.json", "found none"),
        ('{"openapi": ', "api.json", "api.json:1: "),
        ("[" * 5000, "api.json", "nested too deep"),
        ("[" * 60 + "]" * 60, "api.yaml", "nested deeper than 50"),
        ("a: &a [x]\nb: [" + "*a, " * 101 + "]", "api.yaml", "more than 100 aliases"),
        ("openapi: 3.1.0\n---\nopenapi: 3.1.0\n", "api.yaml", "expected one document, found 2"),
        ("x" * (MAX_YAML_BYTES + 1), "api.yaml", "convert it to JSON"),
        (" " * (MAX_BYTES + 1), "api.json", f"at most {MAX_BYTES}"),
    ],
)
def test_what_is_no_document_is_refused_with_its_file(tmp_path: Path, root: Any, name: str, reason: str) -> None:
    path = written(tmp_path, root, name)
    with pytest.raises(BadFile) as refused:
        read(path)
    assert str(path) in str(refused.value)
    assert reason in str(refused.value)


def test_a_yaml_document_of_nearly_2_mib_is_read(tmp_path: Path) -> None:
    path = "  /{0}/{{id}}: {{get: {{operationId: a{0}, summary: 'Reads [a](https://b.example): {1}'}}}}\n"
    text = "openapi: 3.2.0\npaths:\n" + "".join(path.format(n, "word " * 50) for n in range(6000))
    assert 0.9 < len(text) / MAX_YAML_BYTES <= 1
    assert len(read_back(tmp_path, text, "api.yaml").root["paths"]) == 6000


@pytest.mark.parametrize("name", ["missing.json", "missing.yaml"])
def test_a_missing_file_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadFile, match="No such file"):
        read(tmp_path / name)


def referring(**schemas: Any) -> OpenApiFile:
    own = {"$self": "https://api.example/openapi"}
    return document({}, **own, components={"schemas": schemas, "list": [{"x": 1}], "a/b~c": {200: {"y": 2}}})


@pytest.mark.cases(
    ("reference", "found"),
    [
        ("#/components/schemas/A", {"type": "string"}),
        ("#/components/schemas/B", {"type": "string"}),
        ("https://api.example/openapi#/components/schemas/A", {"type": "string"}),
        ("openapi#/components/list/0", {"x": 1}),
        ("#/components/list/0", {"x": 1}),
        ("#/components/a~1b~0c/200", {"y": 2}),
        ("#/components/a%7E1b~0c/200", {"y": 2}),
        ("#/components/a/b~0c/200", None),
    ],
)
def test_a_reference_is_followed_to_what_it_means(reference: str, found: Any) -> None:
    whole = referring(A={"type": "string"}, B={"$ref": "#/components/schemas/A"})
    if found is None:
        with pytest.raises(BadFile, match="leads nowhere"):
            whole.follow({"$ref": reference}, "#/here")
    else:
        assert whole.follow({"$ref": reference}, "#/here")[0] == found


@pytest.mark.cases(
    "reference",
    [
        "http://evil.example/schema.json",
        "https://evil.example/#/A",
        "other.yaml#/A",
        "/etc/passwd",
        "file:///etc/passwd",
        "//[#/A",
        "#anchor",
        "",
        5,
        None,
        ["#/components"],
    ],
)
def test_only_references_within_the_document_are_followed(reference: Any) -> None:
    with pytest.raises(BadFile, match=r"api\.json: #/here: .*only references within"):
        referring().follow({"$ref": reference}, "#/here")


@pytest.mark.cases("reference", ["#/components/nowhere", "#/components/list/7", "#/components/list/-1", "#/"])
def test_a_reference_that_leads_nowhere_is_told_with_its_place(reference: str) -> None:
    with pytest.raises(BadFile, match=r"api\.json: #/here: .*leads nowhere"):
        referring().follow({"$ref": reference}, "#/here")


def test_references_in_a_circle_are_refused() -> None:
    circle = referring(A={"$ref": "#/components/schemas/B"}, B={"$ref": "#/components/schemas/A"})
    with pytest.raises(BadFile, match="in a circle"):
        circle.follow({"$ref": "#/components/schemas/A"}, "#/here")


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
