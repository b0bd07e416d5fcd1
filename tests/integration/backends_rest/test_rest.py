"""The tools of a REST backend against a real server that holds what arrives against the same document."""

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_worker.backends.rest.backend import RestBackend
from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.agents import Auth, Backend
from loom_worker.core.values.chat import ToolUse
from loom_worker.core.values.spans import span_id_of
from loom_worker.core.values.tools import Caller
from loom_worker.tools.registry import Registry
from tests.integration.backends_rest.api import DOCUMENT, FILE, Api, serving
from tests.support.certificates import certified

pytestmark = pytest.mark.integration

SECRET = 'k3y/with"odd signs'
CALLER = Caller("lane", "sess_1", "default", "turn_1", "call_1", trace_id="a" * 32)
ALL = tuple(
    node["operationId"] for item in DOCUMENT["paths"].values() for name, node in item.items() if name != "parameters"
)
SHORT_S = 0.4


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as started:
        yield started


def a_backend(url: str, *, timeout_s: float = 10, **given: Any) -> RestBackend:
    backend = Backend(
        kind="rest",
        url=url,
        openapi=FILE.name,
        operations=ALL,
        allow_private=True,
        auth=Auth("header", "KEY", header="X-Key"),
    )
    return RestBackend(backend, secret=SECRET, folder=FILE.parent, timeout_s=timeout_s, **given)


def call(backend: RestBackend, name: str, /, **arguments: Any) -> Any:
    """Call a tool as the worker does: only with arguments that fit its schema."""
    registry = Registry(backend.tools())
    assert registry.prepared(ToolUse("toolu_1", name, arguments)).error is None
    tool = registry.get(name)
    assert tool is not None
    return tool.run(arguments, CALLER)


def failure(backend: RestBackend, name: str, /, **arguments: Any) -> tuple[str, str | None]:
    with pytest.raises(ToolFailed) as failed:
        call(backend, name, **arguments)
    return str(failed.value), failed.value.code


LINES = {"lines": [{"sku": "a", "pieces": 2}], "note": None}
CALLS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("list_products", {}, {}),
    (
        "list_products",
        {"q": "a&b=c d+é#", "colours": ["red", "a,b"], "sizes": [1, 2], "price": {"min": 1, "max": 9}, "limit": 5.0},
        {"q": "a&b=c d+é#", "colours": ["red", "a,b"], "sizes": [1, 2], "price": {"min": 1, "max": 9}, "limit": 5},
    ),
    ("get_product", {"sku": "red/shoe?#;%2e é"}, {"sku": "red/shoe?#;%2e é"}),
    (
        "get_shelf",
        {"store": "a/b", "shelf": 3, "X-Language": "de"},
        {"store": "a/b", "shelf": 3, "X-Language": "de"},
    ),
    ("create_order", {"body": LINES}, {"body": LINES}),
    ("replace_order", {"id": 7, "body": LINES}, {"id": 7, "body": LINES}),
    ("search", {"body": {"words": "a b&c", "tags": ["x", "y"]}}, {"body": {"words": ["a b&c"], "tags": ["x", "y"]}}),
]


@pytest.mark.parametrize(("name", "arguments", "arrived"), CALLS)
def test_what_arrives_is_what_the_document_asks_for(
    api: Api, name: str, arguments: dict[str, Any], arrived: dict[str, Any]
) -> None:
    assert call(a_backend(api.url), name, **arguments) == {"operation": name, **arrived}
    assert api.headers[0]["x-key"] == SECRET
    assert api.headers[0]["host"] == api.url.split("/")[2]
    assert "cookie" not in api.headers[0]
    assert api.headers[0]["traceparent"] == f"00-{'a' * 32}-{span_id_of('turn_1', 'tool', 'call_1')}-01"


def test_all_operations_are_tools_and_none_shows_the_document_around_it(api: Api) -> None:
    tools = a_backend(api.url).tools()
    assert sorted(tool.spec.name for tool in tools) == sorted(ALL)
    schemas = {tool.spec.name: tool.spec.input_schema for tool in tools}
    assert "$ref" not in json.dumps(schemas)
    order: Any = schemas["create_order"]["properties"]
    assert list(order["body"]["properties"]) == ["note", "lines"]
    assert order["body"]["required"] == ["lines"]
    assert list(schemas["get_shelf"]["properties"]) == ["store", "shelf", "X-Language"]  # type: ignore[call-overload]
    assert [tool.spec.name for tool in tools if tool.needs_approval] == ["create_order"]


def test_answers_that_are_no_json_value_are_told_as_what_they_are(api: Api) -> None:
    backend = a_backend(api.url)
    assert call(backend, "report") == "größe,7\n"
    assert call(backend, "image") == {"bytes": 8, "content_type": "image/png"}
    assert call(backend, "delete_order", id=7) == {"status": 204}
    assert call(backend, "has_product", sku="a")["status"] == 200


def test_failures_have_the_code_of_their_kind(api: Api) -> None:
    backend = a_backend(api.url)
    assert failure(backend, "get_product", sku="none") == (
        'HTTP 404: {"error": "there is no such product"}',
        "ERROR_NOT_FOUND",
    )
    assert failure(backend, "busy") == ('HTTP 429 (asks to wait 7 s): {"error": "slow down"}', "UNAVAILABLE")
    assert failure(backend, "broken") == ("HTTP 500: key ***", "UNAVAILABLE")


def test_the_secret_comes_back_in_nothing_that_is_echoed(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    told = call(a_backend(api.url), "echo")
    assert told["headers"]["X-Key"] == "***"
    assert "odd signs" not in json.dumps(told) + caplog.text
    api.location = "https://elsewhere.example/k3y%2Fwith%22odd%20signs"
    assert failure(a_backend(api.url), "away")[0] == (
        "HTTP 302: it redirects to https://elsewhere.example/***, which is not followed"
    )


def test_a_huge_answer_and_a_bomb_are_cut_and_say_so(api: Api) -> None:
    backend = a_backend(api.url)
    for name in ("huge", "bomb"):
        text = call(backend, name)
        assert text.startswith("[Warning: longer than 10,000,000 bytes; only its beginning follows]\n")
        assert len(text) < 10_000_100


@pytest.mark.parametrize("name", ["drip", "never"])
def test_a_server_without_end_is_left_at_the_deadline(api: Api, name: str) -> None:
    started_s = time.monotonic()
    text, code = failure(a_backend(api.url, timeout_s=SHORT_S), name)
    assert time.monotonic() - started_s > SHORT_S * 0.9
    assert (f"no answer within {SHORT_S:g} s" in text, code) == (True, "UNAVAILABLE")


def test_an_unanswered_change_is_told_as_one_whose_outcome_is_unknown(api: Api) -> None:
    text, _ = failure(a_backend(api.url, timeout_s=SHORT_S), "never_post")
    assert text == f"no answer within {SHORT_S:g} s; whether this POST was done is unknown"


def test_a_redirect_within_the_api_is_followed_and_one_away_is_not(api: Api) -> None:
    assert call(a_backend(api.url), "moved")["operation"] == "get_product"
    api.location = "https://elsewhere.example/x?token=1"
    assert failure(a_backend(api.url), "away") == (
        "HTTP 302: it redirects to https://elsewhere.example/x, which is not followed",
        "UNAVAILABLE",
    )


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certified(tmp_path_factory.mktemp("tls"), "api.example.test")


def test_tls_is_checked_under_the_apis_own_name(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "certificate.pem", certificate / "key.pem")

    def lookup(_: str, port: int, **__: Any) -> list[tuple[Any, ...]]:
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    with serving(tls=context) as api:
        url = api.url.replace("127.0.0.1", "api.example.test")
        text, _ = failure(a_backend(url, lookup=lookup), "report")
        assert text.startswith("TLS: self")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "certificate.pem"))
        assert call(a_backend(url, lookup=lookup), "report") == "größe,7\n"
        other = url.replace("api.example.test", "other.example.test")
        text, _ = failure(a_backend(other, lookup=lookup), "report")
        assert text.startswith("TLS: Hostname mismatch")
        assert len(api.requests) == 1
