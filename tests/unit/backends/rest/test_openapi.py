import pytest

from loom_worker.backends.rest.openapi import listed, operation
from loom_worker.backends.rest.request import question
from loom_worker.core.errors import BadFile
from tests.unit.backends.rest.documents import document, one, parameter


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
