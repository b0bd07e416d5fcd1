from pathlib import Path
from typing import Any

import pytest

from loom_worker.backends.rest.backend import MAX_DESCRIPTION_CHARS, MAX_OPERATIONS, RestBackend
from loom_worker.core.errors import BadFile, BadSettings
from loom_worker.core.values.agents import Auth, Backend
from loom_worker.core.values.tools import MAX_SHOWN
from loom_worker.tools.registry import Registry
from tests.unit.backends.rest.documents import body, parameter, written

PATHS: dict[str, Any] = {
    "/orders": {
        "get": {"operationId": "listOrders", "summary": "List orders", "parameters": [parameter("page", "query")]},
        "post": {"operationId": "createOrder", "requestBody": body({}), "x-loom-approval": True},
    },
    "/orders/{id}": {
        "parameters": [parameter("id", "path")],
        "get": {"operationId": "getOrder", "summary": "One order"},
        "head": {"operationId": "hasOrder"},
        "put": {"operationId": "putOrder", "requestBody": body({})},
        "patch": {"operationId": "patchOrder", "requestBody": body({})},
        "delete": {"operationId": "deleteOrder"},
    },
}


def backend(
    folder: Path,
    *,
    paths: dict[str, Any] = PATHS,
    servers: Any = None,
    secret: str | None = None,
    **agents: Any,
) -> RestBackend:
    root = {"openapi": "3.1.0", "info": {"title": "Orders  of us"}, "paths": paths}
    path = written(folder, root if servers is None else {**root, "servers": servers})
    given = {"url": "https://api.example.com/v1", "openapi": path.name, **agents}
    return RestBackend(Backend(kind="rest", **given), secret=secret, folder=folder, timeout_s=30)


def test_only_what_reads_becomes_a_tool_unless_more_is_named(tmp_path: Path) -> None:
    assert [tool.spec.name for tool in backend(tmp_path).tools()] == ["getOrder", "hasOrder", "listOrders"]
    named = backend(tmp_path, operations=("createOrder", "getOrder", "getOrder"))
    assert [tool.spec.name for tool in named.tools()] == ["createOrder", "getOrder"]
    assert backend(tmp_path, operations=()).tools() == ()


BROKEN: dict[str, Any] = {
    "/file": {"get": {"parameters": [{"name": "q", "in": "query", "schema": {"$ref": "other.json#/X"}}]}},
    "/stream": {"query": {"requestBody": {"content": {"application/jsonl": {"itemSchema": {}}}}}},
    "/undeclared/{id}": {"head": {}},
    "/no_object": {"get": 5},
    "/path": {"$ref": "other.json#/a"},
}


@pytest.mark.cases("path", BROKEN)
def test_an_operation_that_cannot_be_served_costs_itself_alone_unless_it_is_named(tmp_path: Path, path: str) -> None:
    paths = {**PATHS, path: BROKEN[path], "/unread": {"post": 5}}
    made = backend(tmp_path, paths=paths)
    assert [tool.spec.name for tool in made.tools()] == ["getOrder", "hasOrder", "listOrders"]
    assert [f"api.json: #/paths/{path.replace('/', '~1')}" in problem for problem in made.problems] == [True]
    method = {"/stream": "QUERY", "/undeclared/{id}": "HEAD"}.get(path, "GET")
    with pytest.raises(BadFile):
        backend(tmp_path, paths=paths, operations=(f"{method} {path}",))


def test_a_tool_says_what_its_method_does(tmp_path: Path) -> None:
    names = ("listOrders", "hasOrder", "createOrder", "putOrder", "patchOrder", "deleteOrder")
    tools = backend(tmp_path, operations=names).tools()
    facts = {tool.spec.name: (tool.is_idempotent, tool.is_read_only, tool.is_repeatable) for tool in tools}
    assert facts == {
        "listOrders": (True, True, True),
        "hasOrder": (True, True, True),
        "putOrder": (True, False, False),
        "deleteOrder": (True, False, False),
        "createOrder": (False, False, False),
        "patchOrder": (False, False, False),
    }
    assert [tool.spec.name for tool in tools if tool.needs_approval] == ["createOrder"]
    assert {(tool.group, tool.timeout_s, tool.origin) for tool in tools} == {("rest:api.example.com", 32, None)}


def test_the_tools_are_ones_that_the_registry_takes(tmp_path: Path) -> None:
    names = ("listOrders", "createOrder", "putOrder")
    specs = Registry(backend(tmp_path, operations=names).tools()).specs()
    assert specs[1].description == "List orders (GET /orders)"
    assert specs[0].description == "(POST /orders)"


def test_the_description_has_a_line_for_each_operation(tmp_path: Path) -> None:
    made = backend(tmp_path, operations=("getOrder", "createOrder", "listOrders"))
    assert made.describe() == (
        "REST API Orders of us. Its operations are tools:\n"
        "createOrder(body)\ngetOrder(id): One order\nlistOrders(page?): List orders"
    )
    made.close()


def test_a_long_description_names_what_it_leaves_out(tmp_path: Path) -> None:
    many = {f"/{n}": {"get": {"operationId": f"get_{n:02}", "summary": "word " * 200}} for n in range(MAX_SHOWN)}
    text = backend(tmp_path, paths=many).describe()
    assert len(text) < MAX_DESCRIPTION_CHARS + MAX_SHOWN * 10
    assert f"get_{MAX_SHOWN - 1}" in text.splitlines()[-1]
    assert text.splitlines()[-1].startswith("Further operations: ")
    first, *lines, last = backend(tmp_path, paths=many | {"/more": {"get": {}}}).describe().splitlines()
    assert ("more_tools" in first, last) == (True, f"Further operations: {MAX_SHOWN + 1 - len(lines)}")


def test_more_operations_than_a_process_can_check_must_be_named(tmp_path: Path) -> None:
    many = {f"/{n}": {"get": {}} for n in range(MAX_OPERATIONS + 1)}
    with pytest.raises(BadSettings, match="name them in operations"):
        backend(tmp_path, paths=many)


def test_an_unknown_operation_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(BadSettings) as refused:
        backend(tmp_path, operations=("getOrder", "listOrder"))
    assert str(refused.value).startswith("the API has no operation 'listOrder'; the nearest: listOrders")


def test_an_operation_without_an_id_is_named_by_method_and_path(tmp_path: Path) -> None:
    (tool,) = backend(tmp_path, paths={"/a": {"post": {}}}, operations=("POST /a",)).tools()
    assert tool.spec.name == "POST_a"


@pytest.mark.parametrize(
    ("servers", "host"),
    [
        ([{"url": "/v1"}, {"url": "http://plain.example"}, {"url": "https://first.example/x"}], "first.example"),
        ([{"url": "https://{region}.example", "variables": {"region": {"default": "eu"}}}], "eu.example"),
        ([{"url": "https://a.example"}, {"url": "https://b.example"}], "a.example"),
    ],
)
def test_without_a_url_the_documents_first_https_server_is_the_api(tmp_path: Path, servers: Any, host: str) -> None:
    assert backend(tmp_path, servers=servers, url=None).tools()[0].group == f"rest:{host}"


def test_the_documents_servers_do_not_count_beside_a_url(tmp_path: Path) -> None:
    made = backend(tmp_path, servers=[{"url": "https://evil.example"}], url="https://ours.example")
    assert made.tools()[0].group == "rest:ours.example"


@pytest.mark.cases(
    ("given", "reason"),
    [
        ({"url": None}, "needs a url"),
        ({"url": None, "servers": [{"url": "http://plain.example"}]}, "needs a url"),
        ({"url": None, "servers": [{"url": "https://169.254.169.254"}]}, "refused"),
        ({"url": "http://127.0.0.1:8000"}, "allow_private: true opens private ones"),
        ({"url": "https://api.example.com/?key=1"}, "neither ? nor #"),
        ({"url": "https://api.example.com/#a"}, "neither ? nor #"),
        ({"openapi": None}, "needs openapi"),
        ({"openapi": "https://api.example.com/openapi.json"}, "needs openapi"),
        ({"auth": Auth("bearer", "API")}, "LOOM_SECRET_API is not set"),
        (
            {"auth": Auth("bearer", "API"), "secret": "k", "url": "http://api.example.com"},
            "does not go out unencrypted",
        ),
    ],
)
def test_settings_that_cannot_work_are_told(tmp_path: Path, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSettings) as refused:
        backend(tmp_path, **given)
    assert reason in str(refused.value)


def test_a_document_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"other\.yaml: No such file"):
        backend(tmp_path, openapi="other.yaml")


def test_nobody_is_asked_before_a_tool_is_called(tmp_path: Path) -> None:
    def lookup(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        raise AssertionError

    path = written(tmp_path, {"openapi": "3.1.0", "paths": PATHS})
    given = Backend(kind="rest", url="https://api.example.com", openapi=path.name)
    made = RestBackend(given, secret=None, folder=tmp_path, timeout_s=30, lookup=lookup)
    assert len(made.tools()) == 3


def test_nothing_invisible_and_no_line_break_of_the_document_reaches_the_model_in_its_texts(tmp_path: Path) -> None:
    hidden = "a\u202eb\n\u200bc\U000e0041"
    node = {
        "operationId": "find",
        "summary": hidden,
        "parameters": [parameter("q", "query", {"type": "string", "title": hidden, "description": hidden})],
    }
    given = backend(tmp_path, paths={f"/{hidden}": {"get": node}})
    (found,) = given.tools()
    assert given.describe().splitlines()[1:] == ["find(q?): ab c"]
    assert found.spec.description == "ab c (GET /ab c)"
    assert found.spec.input_schema["properties"]["q"] == {"type": "string", "title": "ab c", "description": "ab c"}
