"""Turns whose answers must have a form, at the edge."""

from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

FORM = {"type": "json_schema", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}


def submit(client: FlaskClient, form: Any, **headers: str) -> TestResponse:
    body = {"input": "How many?", "response_format": form}
    return client.post("/v1/sessions/s1/turns", json=body, headers=headers)


WIDE = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)} | {"d60": {}}
"""Two parts that have two parts each, and so on."""


def objects(**more: Any) -> Any:
    return {"type": "json_schema", "schema": {"type": "object", **more}}


def test_a_form_is_accepted_and_the_turn_has_no_object_yet(client: FlaskClient) -> None:
    for form in (FORM, {**FORM, "name": "my-Form_1"}, objects(anyOf=[{"$ref": "#/$defs/a"}], **{"$defs": {"a": {}}})):
        answer = submit(client, form)
        assert (answer.status_code, answer.get_json()["output_parsed"]) == (202, None)
    assert submit(client, None).status_code == 202


@pytest.mark.cases(
    ("form", "pointer"),
    [
        ("json", "/response_format"),
        ({"schema": {"type": "object"}}, "/response_format/type"),
        ({**FORM, "type": "json_object"}, "/response_format/type"),
        ({"type": "json_schema"}, "/response_format/schema"),
        ({**FORM, "strict": True}, "/response_format/strict"),
        ({**FORM, "name": "a b"}, "/response_format/name"),
        ({**FORM, "name": "n" * 65}, "/response_format/name"),
        ({**FORM, "schema": True}, "/response_format/schema"),
        ({**FORM, "schema": {}}, "/response_format/schema"),
        ({**FORM, "schema": {"type": ["object", "null"]}}, "/response_format/schema"),
        (objects(properties={"a/b": {"type": "objekt"}}), "/response_format/schema"),
        (objects(**{"$ref": "https://example.org/schema"}), "/response_format/schema"),
        (objects(**{"$ref": "#/$defs/none"}), "/response_format/schema"),
        (objects(**{"$dynamicRef": "https://example.org/schema"}), "/response_format/schema"),
        (objects(**{"$id": "http://[", "$ref": "b"}), "/response_format/schema"),
        (objects(properties={"a": {"pattern": "("}}), "/response_format/schema"),
        (objects(patternProperties={"a": {}}), "/response_format/schema"),
        (objects(description="x" * 65_536), "/response_format/schema"),
        (objects(**{"$ref": "#/$defs/d0", "$defs": WIDE}), "/response_format/schema"),
    ],
)
def test_what_is_no_form_is_told_with_its_place(client: FlaskClient, form: Any, pointer: str) -> None:
    answer = submit(client, form)
    assert (answer.status_code, [each["pointer"] for each in answer.get_json()["errors"]]) == (422, [pointer])


@pytest.mark.cases(
    "more",
    [
        {"properties": {"a": {"pattern": "((((((a?){50}){50}){50}){50}){50}){50}"}}},
        {"$defs": WIDE, "properties": {"a": {"$ref": "#/$defs/d0"}}},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$defs": {f"d{n}": {"$anchor": f"a{n}", "not": {"$ref": f"#a{n}"}} for n in range(900)}},
        {"required": [each for n in range(3_500) for each in (n, f"n{n}")]},
    ],
    ids=["a pattern", "doublings", "a circle", "anchors", "a list"],
)
def test_a_schema_that_would_keep_the_server_busy_is_not_tried_here(client: FlaskClient, more: Any) -> None:
    assert submit(client, objects(**more)).status_code in (202, 422)  # within the time that a test may take


def test_the_same_key_with_another_form_is_refused(client: FlaskClient) -> None:
    key = {"Idempotency-Key": "k1"}
    answers = [submit(client, form, **key).status_code for form in (FORM, FORM, {**FORM, "name": "other"})]
    assert answers == [202, 202, 422]
