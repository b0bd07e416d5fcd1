import re

import pytest

from loom_worker.backends.rest.openapi import RequestBody, RestParameter, fit, free, listed, may_be_sent, operation
from loom_worker.core.errors import BadFile
from tests.unit.backends.rest.documents import body, document, one, parameter


def test_parameters_become_arguments_with_their_schemas() -> None:
    made = one(
        {
            "parameters": [
                parameter("id", "path", {"type": "integer"}, required=True),
                parameter("limit", "query", {"type": "integer", "maximum": 9}, description="How  many"),
                parameter("X-Trace", "header", required=True),
            ]
        },
        path="/things/{id}",
    )
    assert made.input_schema == {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "limit": {"type": "integer", "maximum": 9, "description": "How many"},
            "X-Trace": {"type": "string"},
        },
        "additionalProperties": False,
        "required": ["id", "X-Trace"],
    }
    assert made.parameters == (
        RestParameter("id", "id", "path", "simple", is_exploded=False),
        RestParameter("limit", "limit", "query", "form", is_exploded=True),
        RestParameter("X-Trace", "X-Trace", "header", "simple", is_exploded=False),
    )


def test_arguments_of_one_name_are_kept_apart_by_their_place() -> None:
    made = one(
        {"parameters": [parameter("body", "path"), parameter("body", "query")], "requestBody": body({})},
        path="/{body}",
        method="post",
    )
    assert [each.argument for each in made.parameters] == ["body", "query_body"]
    assert made.body == RequestBody("body_2", "application/json")
    assert made.input_schema["required"] == ["body", "body_2"]


def test_names_that_providers_refuse_are_made_fit_and_the_apis_own_is_kept() -> None:
    (made,) = one({"parameters": [parameter("filter[größe]", "query")]}).parameters
    assert (made.name, made.argument) == ("filter[größe]", "filter_gr_e")


@pytest.mark.cases("text", ["", "Ünü", "a b/c{d}", "x" * 200, "..", "\n", "语"])
def test_every_name_becomes_one_that_providers_take(text: str) -> None:
    taken: set[str] = set()
    for _ in range(12):
        name = free(fit(text), taken)
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
        assert name not in taken
        taken.add(name)


def test_the_operations_own_parameter_replaces_that_of_its_path() -> None:

    whole = document(
        {
            "/a": {
                "parameters": [parameter("n", "query", {"type": "integer"}), parameter("m", "query")],
                "get": {"parameters": [{"$ref": "#/components/parameters/N"}]},
            }
        },
        components={"parameters": {"N": parameter("n", "query", {"type": "boolean"})}},
    )
    made = operation(whole, listed(whole)[0])
    assert made.input_schema["properties"] == {"n": {"type": "boolean"}, "m": {"type": "string"}}


@pytest.mark.cases(
    "header",
    [
        *(
            "Host",
            "authorization",
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "Cookie",
            "Proxy-Authorization",
        ),
        *("X-Forwarded-Host", "Forwarded", "X-HTTP-Method-Override", "X-Original-URL", "TE", "Upgrade", "Expect"),
        *(
            "Content-Type",
            "Accept",
            "Accept-Encoding",
            "User-Agent",
            "X Space",
            "X:Colon",
            "X\r\nInjected",
            "Ünicode",
            "",
        ),
    ],
)
def test_the_model_has_no_say_in_headers_that_are_not_the_apis_own(header: str) -> None:
    assert not may_be_sent(header)
    if header:
        assert one({"parameters": [parameter(header, "header", required=True)]}).parameters == ()


def test_cookies_are_left_out() -> None:
    assert one({"parameters": [parameter("session", "cookie", required=True)]}).parameters == ()


@pytest.mark.cases(
    ("media_type", "is_form"),
    [
        ("application/json", False),
        ("application/json; charset=utf-8", False),
        ("application/merge-patch+json", False),
        ("application/x-www-form-urlencoded", True),
    ],
)
def test_json_and_forms_are_sent_as_what_the_document_calls_them(media_type: str, is_form: bool) -> None:
    made = one({"requestBody": body({"type": "object"}, media_type)}, method="post").body
    assert made == RequestBody("body", media_type)
    assert made.is_form == is_form


def test_json_is_preferred_to_a_form() -> None:
    content = {"application/x-www-form-urlencoded": {}, "text/plain": {}, "application/json": {}}
    made = one({"requestBody": {"content": content}}, method="post")
    assert made.body == RequestBody("body", "application/json")
    assert "required" not in made.input_schema


def test_the_body_of_a_get_is_left_out() -> None:
    assert one({"requestBody": body({})}).body is None


@pytest.mark.cases(
    ("node", "reason"),
    [
        ({"parameters": [parameter("a", "body")]}, "#/paths/~1things/post/parameters/0: a parameter needs a name"),
        ({"parameters": [{"in": "query"}]}, "a parameter needs a name"),
        ({"parameters": [5]}, "#/paths/~1things/post/parameters/0: expected an object"),
        ({"parameters": {}}, "expected a list"),
        ({"parameters": [parameter("a", "query", style="matrix")]}, "style 'matrix' is not served in a query"),
        ({"parameters": [{"$ref": "http://evil.example/p"}]}, "only references within the document"),
        ({"parameters": [{"name": "a", "in": "query", "content": {}}]}, "expected an object"),
        ({"requestBody": body({}, "multipart/form-data")}, "multipart/form-data cannot be sent"),
        ({"requestBody": {}}, "a body of no type cannot be sent"),
        ({"requestBody": {"content": {"application/json": 7}}}, "expected an object"),
    ],
)
def test_what_cannot_be_served_is_told_with_file_and_place(node: dict[str, object], reason: str) -> None:
    with pytest.raises(BadFile) as refused:
        one(node, method="post")
    assert str(refused.value).startswith("api.json: #/")
    assert reason in str(refused.value)
