import re
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from loom_worker.backends.tool_schemas import Unfit, normal, sent
from loom_worker.core.values.json import Json

KEY = re.compile("[a-zA-Z0-9_.-]{1,64}")
TEXT = {"type": "string"}


def of(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


COMBINED = st.recursive(
    st.sampled_from([{}, {**of(ä=TEXT), "required": ["ä"]}]),
    lambda inner: (
        st.dictionaries(st.sampled_from(["anyOf", "oneOf", "allOf"]), st.lists(inner, min_size=1, max_size=3))
        | st.dictionaries(st.text(max_size=70), inner, max_size=3).map(lambda named: of(**named))
        | inner.map(lambda each: {"items": each, "$defs": {"d": each}, "$ref": "#/$defs/d"})
    ),
    max_leaves=10,
)


def keys(schema: Any) -> set[str]:
    """Names of properties at any depth."""
    if isinstance(schema, dict):
        return {*schema.get("properties", ()), *keys(list(schema.values()))}
    return {key for each in schema for key in keys(each)} if isinstance(schema, list) else set()


@given(COMBINED)
def test_whatever_is_sent_no_provider_refuses(schema: Json) -> None:
    found = sent(normal(schema)).schema
    assert not {"anyOf", "oneOf", "allOf", "$ref"} & found.keys()
    assert all(KEY.fullmatch(key) for key in keys(found))
    Draft202012Validator.check_schema(found)


@pytest.mark.cases(
    "name", ["$top", "@odata.type", "x" * 70, "größe", "サイズ", "", "a/b~c", "size\n", "می‌خواهم", "a b"]
)
def test_a_name_that_providers_refuse_finds_its_way_back(name: str) -> None:
    found = sent(of(**{name: TEXT, "plain": of(**{name: TEXT})}))
    ((key, _), _) = found.schema["properties"].items()
    assert key != name
    assert found.own({key: "a", "plain": [{key: "b"}]}) == {name: "a", "plain": [{name: "b"}]}


def test_all_that_names_a_property_is_renamed_with_it() -> None:
    schema = of(**{"$a": TEXT, "b": {"$ref": "#/properties/$a"}, "c": {"default": {"$a": 1}}})
    found = sent(schema | {"required": ["$a"]})
    ((key, _),) = found.own_names.items()
    assert found.schema["required"] == [key]
    assert found.schema["properties"]["b"] == {"$ref": f"#/properties/{key}"}
    assert found.schema["properties"]["c"] == {"default": {"$a": 1}}
    needs = {"$a": {"required": ["b", "$a"]}, "b": ["$a"], "c": "$a"}
    beside = of(**{"$a": {}, "d": {"$ref": "#/dependentSchemas/$a"}})
    found = sent(normal({**beside, "dependencies": needs, "propertyNames": {"enum": ["$a"]}}))
    assert found.schema["properties"]["d"] == {"$ref": f"#/dependentSchemas/{key}"}
    assert found.schema["dependentRequired"] == {"b": [key], "c": [key]}
    assert found.schema["dependentSchemas"] == {key: {"required": ["b", key]}}
    assert not {"dependencies", "propertyNames"} & found.schema.keys()
    assert sent(of(a={"propertyNames": TEXT})).schema == of(a={"propertyNames": TEXT})


@pytest.mark.cases("name", ["Partial<Foo>", "größe", "a b", "a~1b", "a/b~c", "100%", ""])
def test_a_reference_is_read_as_a_uri_writes_it(name: str) -> None:
    step = quote(name.replace("~", "~0").replace("/", "~1"))
    found = sent({"$ref": f"#/definitions/{step}", "definitions": {name: of(a=TEXT)}})
    assert found.schema["properties"] == {"a": TEXT}
    found = sent(of(**{name: TEXT, "b": {"$ref": f"#/properties/{step}"}}))
    assert found.schema["properties"]["b"] == {"$ref": f"#/properties/{next(iter(found.own_names))}"}


@pytest.mark.cases(
    ("schema", "properties", "required"),
    [
        ({"oneOf": [of(a=TEXT, b={}) | {"required": ["a", "b"]}, of(a={}) | {"required": ["a"]}]}, "ab", ["a"]),
        ({"allOf": [of(a=TEXT) | {"required": ["a"]}, of(b=TEXT) | {"required": ["b"]}]}, "ab", ["a", "b"]),
        ({"$ref": "#/$defs/d", "$defs": {"d": of(a=TEXT) | {"required": ["a"]}}}, "a", ["a"]),
        ({"anyOf": [{"$ref": "#/$defs/d"}, of(b={})], "$defs": {"d": of(a=TEXT)}}, "ab", []),
        ({"allOf": [{"anyOf": [of(a={}), of(b={})]}, {"$ref": "#"}]}, "ab", []),
        (of(a=TEXT) | {"additionalProperties": False, "anyOf": [of(a={}, b={}), {"required": ["a"]}]}, "a", []),
    ],
)
def test_alternatives_at_the_top_become_the_properties_that_any_of_them_may_have(
    schema: Json, properties: str, required: list[str]
) -> None:
    found = sent(normal(schema))
    assert sorted(found.schema["properties"]) == list(properties)
    assert found.schema["required"] == required


@pytest.mark.cases("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_that_each_hold_two_others_do_not_keep_a_worker_busy_for_years(keyword: str) -> None:
    twice: Json = {f"A{i}": {keyword: [{"$ref": f"#/$defs/A{i + 1}"}] * 2} for i in range(60)}
    with pytest.raises(Unfit, match="4000"):
        sent(normal({"$ref": "#/$defs/A0", "$defs": twice | {"A60": of(a=TEXT)}}))


def test_what_alternatives_say_differently_of_one_property_is_kept() -> None:
    found = sent(normal({"oneOf": [of(kind={"const": "a"}), of(kind={"const": "b"})]})).schema
    assert found["properties"] == {"kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}}


POINT = {"type": "array", "items": [{"type": "number"}, TEXT], "additionalItems": False}


@pytest.mark.cases(
    ("old", "valid", "invalid"),
    [
        (of(a={"minimum": 0, "exclusiveMinimum": True}), 1, 0),
        (of(a={"maximum": 9, "exclusiveMaximum": False}), 9, 10),
        (of(a=POINT), [1, "x"], [1, "x", 2]),
        (of(a={"items": [TEXT], "additionalItems": {"type": "number"}}), ["x", 1], ["x", "y"]),
        (of(a={"$ref": "#/definitions/d"}) | {"definitions": {"d": {"minimum": 0, "exclusiveMinimum": True}}}, 1, 0),
        (of(a={**TEXT, "required": True}), "x", 1),
        (of(a=TEXT) | {"type": ["object", "null"]}, "x", 1),
        ({"properties": {"a": TEXT}}, "x", 1),
        ({"allOf": [of(a=TEXT)], "properties": []}, "x", 1),
        (of(a=TEXT, b=None, c=[]) | {"required": ["a", "a"], "$defs": []}, "x", 1),
        (of(a={**TEXT, "enum": None, "title": None, "$ref": None}) | dict.fromkeys(["required", "allOf"]), "x", 1),
        (of(a={"type": ["string", "string"], "items": None, "additionalProperties": []}), "x", 1),
        (of(a={"dependencies": {"b": of(c=TEXT), "c": "d"}}), {"b": 1, "c": "x", "d": 1}, {"b": 1, "c": 2, "d": 1}),
        (of(a={"const": None, "default": None, "type": None}), None, 1),
    ],
)
def test_older_drafts_mean_the_same_in_todays_words(old: Json, valid: Any, invalid: Any) -> None:
    found = normal({"$schema": "http://json-schema.org/draft-04/schema#", **old})
    for schema in (found, sent(found).schema):
        Draft202012Validator.check_schema(schema)
        validator = Draft202012Validator(schema)
        assert validator.is_valid({"a": valid})
        assert not validator.is_valid({"a": invalid})
