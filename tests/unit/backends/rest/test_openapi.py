import re

import pytest

from loom_worker.backends.rest.openapi import RequestBody, RestParameter, fit, free, listed, may_be_sent, operation
from loom_worker.backends.rest.request import question
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


def test_operations_are_listed_with_unlike_names_that_providers_take() -> None:
    paths = {
        "/a/{id}": {"get": {"operationId": "get.a"}, "post": {}, "trace": {}, "options": {}, "summary": "x"},
        "/b": {"get": {"operationId": "get_a"}, "head": {"operationId": "x" * 100}, "x-own": {}},
        "x-extension": 5,
    }
    assert [(each.name, each.method, each.id) for each in listed(document(paths))] == [
        ("get_a", "GET", "get.a"),
        ("POST_a_id", "POST", "POST /a/{id}"),
        ("get_a_2", "GET", "get_a"),
        ("x" * 64, "HEAD", "x" * 100),
    ]


def test_what_3_2_adds_is_served_or_left_out() -> None:
    form = {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}
    stream = {"application/jsonl": {"itemSchema": {"type": "object"}}, "application/json": {"itemSchema": {}}}
    whole = {"name": "q", "in": "querystring"}
    get = {"parameters": [whole | {"content": form}, whole | {"name": "r", "content": {"text/plain": {}}}]}
    item = {"query": {"requestBody": {"content": stream}}, "additionalOperations": {"COPY": {}}, "get": get}
    given = document({"/a": item}, version="3.2.0", tags=[{"name": "a", "parent": "b"}], servers=[{"name": "x"}])
    read, query = (operation(given, entry) for entry in listed(given))
    assert (query.method, query.body and query.body.media_type) == ("QUERY", "application/json")
    assert question(read, {"q": {"a": "1 2", "b": [3]}}, prefix="").path == "/a?a=1%202&b=%5B3%5D"


def test_an_operation_that_is_not_wanted_may_be_one_that_is_not_served() -> None:
    paths = {"/a": {"get": {"parameters": 5}, "post": {}}}
    broken, sound = listed(document(paths))
    assert operation(document(paths), sound).method == "POST"
    with pytest.raises(BadFile):
        operation(document(paths), broken)


@pytest.mark.cases(
    ("node", "summary"),
    [
        ({"summary": "List  things", "description": "All of them."}, "List things — All of them."),
        ({"summary": "Same", "description": "Same"}, "Same"),
        ({"description": "x" * 900}, "x" * 499 + "…"),
        ({"summary": 5}, ""),
        ({"summary": "Old", "deprecated": True}, "Deprecated. Old"),
    ],
)
def test_the_summary_is_short_and_says_what_the_document_says(node: dict[str, object], summary: str) -> None:
    assert one(node).summary == summary


@pytest.mark.cases(("mark", "needs"), [(True, True), (False, False), ("yes", False), (None, False)])
def test_a_person_is_asked_where_the_document_says_so(mark: object, needs: bool) -> None:
    assert one({"x-loom-approval": mark}, method="post").needs_approval is needs


def test_a_header_that_carries_the_secret_is_not_the_models() -> None:
    whole = document({"/a": {"get": {"parameters": [parameter("X-API-Key", "header", required=True)]}}})
    (entry,) = listed(whole)
    assert len(operation(whole, entry).parameters) == 1
    made = operation(whole, entry, withheld={"x-api-key"})
    assert (made.parameters, made.input_schema["properties"]) == ((), {})


@pytest.mark.cases(
    ("paths", "reason"),
    [
        ({"a": {}}, "#/paths/a: a path must begin with /"),
        ({"//evil.example/{x}": {"get": {}}}, "no path parameter is named x"),
        ({"/a": []}, "#/paths/~1a: expected an object"),
        ({"/a": {"$ref": "other.json#/a"}}, "only references within"),
        ([1], "#/paths: expected an object"),
    ],
)
def test_malformed_paths_are_told_with_their_place(paths: dict[str, object], reason: str) -> None:
    whole = document(paths)
    with pytest.raises(BadFile) as refused:
        [operation(whole, entry) for entry in listed(whole)]
    assert reason in str(refused.value)
