import json
import math
from collections.abc import Mapping
from typing import Any

import pytest

from loom_worker.core.values.chat import ToolSpec, ToolUse
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Tool
from loom_worker.tools.arguments import MAX_ERROR_CHARS
from loom_worker.tools.registry import Prepared, Registry

SQL: Json = {
    "type": "object",
    "properties": {
        "sql": {"type": "string", "minLength": 1},
        "options": {
            "type": "object",
            "properties": {"a/b": {"type": "array", "items": {"$ref": "#/$defs/count"}}},
        },
    },
    "$defs": {"count": {"type": "integer", "minimum": 0}},
    "required": ["sql"],
    "additionalProperties": False,
}


def tool(name: str, schema: Mapping[str, object] | None = None, *, is_read_only: bool = True) -> Tool:
    spec = ToolSpec(name, f"Does {name}.", schema or {"type": "object"})
    return Tool(spec, lambda _arguments, _caller: "done", is_read_only=is_read_only)


@pytest.fixture
def registry() -> Registry:
    return Registry([tool("list_tables"), tool("execute_sql", SQL), tool("get_schema")])


def use(name: str, arguments: Any = None, flaw: str | None = None) -> ToolUse:
    return ToolUse("toolu_1", name, arguments if arguments is not None else {}, flaw)


def test_specs_come_in_the_same_order_however_the_tools_were_given() -> None:
    names = ["b", "a", "Z", "c_1", "c-1"]
    forward, backward = Registry(map(tool, names)), Registry(map(tool, reversed(names)))
    assert forward.specs() == backward.specs()
    assert [spec.name for spec in forward.specs()] == sorted(names)
    assert json.dumps([spec.name for spec in forward.specs()]) == json.dumps([spec.name for spec in backward.specs()])


def test_an_agent_is_shown_what_it_is_allowed_and_nothing_else(registry: Registry) -> None:
    assert [spec.name for spec in registry.specs(("list_tables", "execute_sql", "nonesuch"))] == [
        "execute_sql",
        "list_tables",
    ]
    assert registry.specs(()) == ()
    assert len(registry.specs(None)) == 3


def test_a_tool_is_got_by_its_name(registry: Registry) -> None:
    found = registry.get("get_schema")
    assert found is not None
    assert found.spec.name == "get_schema"
    assert registry.get("nonesuch") is None


def test_a_call_that_fits_has_no_flaw(registry: Registry) -> None:
    assert registry.prepared(use("execute_sql", {"sql": "SELECT 1", "options": {"a/b": [1, 2]}})).error is None
    assert registry.prepared(use("list_tables"), ("list_tables",)).error is None


def test_an_unknown_tool_is_answered_with_the_likely_one(registry: Registry) -> None:
    error = registry.prepared(use("exec_sql")).error
    assert error == "there is no tool 'exec_sql'; did you mean execute_sql?"


def test_an_unknown_tool_like_no_other_is_answered_with_all(registry: Registry) -> None:
    error = registry.prepared(use("zzz")).error
    assert error == "there is no tool 'zzz'; known: execute_sql, get_schema, list_tables"
    assert registry.prepared(use("zzz"), ()).error == "there is no tool 'zzz'; known: none"


def test_tools_an_agent_may_not_use_are_not_proposed_to_it(registry: Registry) -> None:
    error = registry.prepared(use("exec_sql"), ("list_tables",)).error
    assert error is not None
    assert "execute_sql" not in error


def test_a_tool_that_is_not_allowed_is_refused_by_name(registry: Registry) -> None:
    error = registry.prepared(use("execute_sql", {"sql": "SELECT 1"}), ("list_tables",)).error
    assert error == "the tool 'execute_sql' is not allowed for this agent"


def test_arguments_that_could_not_be_read_are_not_checked_against_the_schema(registry: Registry) -> None:
    error = registry.prepared(use("list_tables", {}, flaw="cut at 40 characters")).error
    assert error == "the arguments could not be read: cut at 40 characters"


def test_a_call_that_fits_keeps_its_arguments(registry: Registry) -> None:
    call = use("execute_sql", {"sql": "SELECT 1", "options": {"a/b": [1, 2]}})
    assert registry.prepared(call) == Prepared(call.arguments)


def test_arguments_of_another_type_that_say_the_same_are_converted_in_a_copy(registry: Registry) -> None:
    call = use("execute_sql", {"sql": 1, "options": '{"a/b": ["3"]}'})
    assert registry.prepared(call) == Prepared({"sql": "1", "options": {"a/b": [3]}})
    assert call.arguments == {"sql": 1, "options": '{"a/b": ["3"]}'}
    assert registry.prepared(call).error is None


@pytest.mark.cases(
    ("arguments", "said"),
    [
        ({}, "/: 'sql' is a required property"),
        ({"sql": {"text": "x"}}, '/sql: expected string, got {"text": "x"}'),
        ({"sql": "x", "optoins": {}}, "/: unknown property 'optoins'; did you mean options?"),
        ({"sql": "x", "zzz": 1}, "/: unknown property 'zzz'; known: options"),
        ({"sql": "x", "options": {"a/b": [1, -2]}}, "/options/a_b_c14cddc0/1: -2 is less than the minimum of 0"),
        ({"sql": "x", "options": {"a/b": [1, "two"]}}, '/options/a_b_c14cddc0/1: expected integer, got "two"'),
        ({"sql": ""}, "/sql: '' should be non-empty"),
        (["x"], '/: expected object, got ["x"]'),
    ],
)
def test_a_violation_is_told_with_its_place_what_was_expected_and_what_was_given(
    registry: Registry, arguments: Any, said: str
) -> None:
    found = registry.prepared(use("execute_sql", arguments))
    assert found.error is not None
    assert found.error.replace('""', "''") == said


def test_what_was_wrong_is_said_however_long_the_value_is() -> None:
    registry = Registry([tool("note", {"type": "object", "properties": {"text": {"type": "string", "maxLength": 9}}})])
    assert str(registry.prepared(use("note", {"text": "x" * 5000})).error).endswith("is too long")


def test_all_types_that_would_do_are_named() -> None:
    either = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "string"}}]}
    registry = Registry([tool("pick", {"type": "object", "properties": {"which": either}})])
    assert registry.prepared(use("pick", {"which": True})).error is None  # a list of one text
    assert (
        registry.prepared(use("pick", {"which": {"a": 1}})).error == '/which: expected integer or array, got {"a": 1}'
    )


def test_an_agent_that_only_reads_gets_no_tool_that_changes_something() -> None:
    registry = Registry([tool("look"), tool("write", is_read_only=False)])
    assert [spec.name for spec in registry.specs(read_only=True)] == ["look"]
    assert [spec.name for spec in registry.specs(("write",))] == ["write"]
    assert registry.prepared(use("look"), read_only=True).error is None
    refused = registry.prepared(use("write"), read_only=True).error
    assert refused == "the tool 'write' changes something, and this agent may only read"
    assert registry.prepared(use("wirte"), read_only=True).error == "there is no tool 'wirte'; known: look"


@pytest.mark.parametrize(
    "call",
    [
        use("execute_sql", {"sql": ["x" * 100_000]}),
        use("n" * 100_000),
        use("list_tables", {}, flaw="why " * 10_000),
    ],
)
def test_a_flaw_stays_short_whatever_the_model_sent(registry: Registry, call: ToolUse) -> None:
    error = registry.prepared(call).error
    assert error is not None
    assert len(error) <= MAX_ERROR_CHARS


@pytest.mark.cases(
    ("schema", "said"),
    [
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "/properties/a/type"),
        ({"type": "object", "required": "sql"}, "/required"),
        ({"type": "string"}, "not one whose type is object"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "refers to"),
        ({"type": "object", "allOf": [{"$ref": "https://example.com/schema.json"}]}, "refers to"),
        ({"type": "object", "properties": {"a": {"enum": [math.nan]}}}, "not JSON compliant"),
        ({"type": "object", "properties": {"a": {"enum": {1, 2}}}}, "set is not JSON serializable"),
        ({"type": "object", "properties": {"default": {"items": {"$ref": "#/a"}}}}, "refers to"),
        ({"type": "object", "properties": {"a\ud83d": {}}}, "'a\\ud83d'"),
        ({"type": "object", "properties": {"a\0": {}}}, "'a\\x00'"),
        ({"type": "object", "default": json.loads("[" * 95 + "]" * 95)}, "nested more than"),
    ],
)
def test_a_tool_with_an_invalid_schema_is_left_out_and_named_with_its_place(schema: Json, said: str) -> None:
    registry = Registry([tool("good"), tool("bad", schema)])
    assert [spec.name for spec in registry.specs()] == ["good"]
    (problem,) = registry.problems
    assert "'bad'" in problem
    assert said in problem


def test_what_looks_like_a_reference_in_data_is_none() -> None:
    data = {"const": {"$ref": "x.json"}, "examples": [{"$ref": "#/a"}], "default": {"$ref": "#/b"}}
    schema = {"type": "object", "properties": {"default": data, "x": {"enum": [data]}, "$ref": {}}, "x-of": data}
    assert Registry([tool("link", schema)]).problems == ()


@pytest.mark.cases(
    ("bad", "shown"), [("\ud83d", "\ufffd"), ("\0", "\ufffd"), ("\ud83d\ude00", "\U0001f600"), ("ü", "ü")]
)
def test_a_text_that_no_request_can_hold_costs_a_tool_no_more_than_its_characters(bad: str, shown: str) -> None:
    schema = {"type": "object", "properties": {"emoji": {"description": bad, "enum": [bad]}}}
    registry = Registry([Tool(ToolSpec("react", bad, schema), lambda _arguments, _caller: "done")])
    (spec,) = registry.specs()
    shown_schema = {"emoji": {"description": shown, "enum": [shown]}}
    assert (spec.description, spec.input_schema["properties"]) == (shown, shown_schema)
    assert registry.prepared(use("react", {"emoji": shown})).error is None


@pytest.mark.cases("name", ["", "a b", "ä", "x" * 65, "tool\n", "a.b"])
def test_a_name_that_a_provider_would_refuse_is_left_out(name: str) -> None:
    registry = Registry([tool(name), tool("good")])
    assert [spec.name for spec in registry.specs()] == ["good"]
    assert "a name is" in registry.problems[0]


def test_of_two_tools_with_one_name_the_first_is_kept() -> None:
    registry = Registry([tool("a"), tool("b"), tool("a", SQL)])
    assert [spec.name for spec in registry.specs()] == ["a", "b"]
    assert registry.specs()[0].input_schema == {"type": "object"}
    assert "'a'" in registry.problems[0]


def test_arguments_are_asked_for_under_names_that_providers_take_and_given_under_the_tools_own() -> None:
    order = {"type": "object", "properties": {"größe": {"type": "integer"}}, "required": ["größe"]}
    schema = {"type": "object", "properties": {"$top": {"type": "integer"}, "orders": {"items": order}, "data": {}}}
    registry = Registry([tool("list", schema)])
    (spec,) = registry.specs()
    properties: Any = spec.input_schema["properties"]
    top, orders, _ = properties
    (size,) = properties["orders"]["items"]["properties"]
    assert properties["orders"]["items"]["required"] == [size]
    assert '"$top"' in properties[top]["description"]
    given = use("list", {top: "5", orders: [{size: 3}, {"größe": 4}], "data": {"top": 1}})
    own = {"$top": 5, "orders": [{"größe": 3}, {"größe": 4}], "data": {"top": 1}}
    assert registry.prepared(given) == Prepared(own)
    assert registry.prepared(use("list", own)) == Prepared(own)
    assert registry.prepared(use("list", {top: "x"})) == Prepared({"$top": "x"}, f'/{top}: expected integer, got "x"')
    assert registry.prepared(use("list", {"orders": [{}]})).error == f"/orders/0: '{size}' is a required property"
    assert "'$top'" in registry.changes[0]


def test_alternatives_at_the_top_are_told_and_still_hold() -> None:
    either = {"anyOf": [{"required": ["title"]}, {"required": ["body"]}]}
    properties = {"title": {"type": "string"}, "body": {"type": "string"}}
    registry = Registry([tool("update", {"type": "object", "properties": properties, **either})])
    (spec,) = registry.specs()
    assert spec.input_schema == {"type": "object", "properties": properties, "required": []}
    assert '{"anyOf":[{"required":["title"]},{"required":["body"]}]}' in spec.description
    assert registry.prepared(use("update", {"title": "x"})) == Prepared({"title": "x"})
    assert registry.prepared(use("update", {})).error is not None
