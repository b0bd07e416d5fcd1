from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.support.web_stage import Submit
from tests.unit.web.described import DOCUMENT


def served(app: Flask) -> list[tuple[str, str]]:
    """Method and a concrete path of every route under /v1."""
    rules = [rule for rule in app.url_map.iter_rules() if rule.rule.startswith("/v1/")]
    paths = [
        (rule, app.url_map.bind("localhost").build(rule.endpoint, dict.fromkeys(rule.arguments, "x"))) for rule in rules
    ]
    return [(method, path) for rule, path in paths for method in sorted((rule.methods or set()) - {"OPTIONS"})]


def test_every_operation_refuses_a_parameter_it_does_not_declare(app: Flask, client: FlaskClient) -> None:
    routes = served(app)
    assert len(routes) > 25
    for method, path in routes:
        answer = client.open(path, method=method, query_string={"nobody_declared": "1"})
        assert answer.status_code == 400, (method, path)


def test_every_declared_parameter_is_taken(client: FlaskClient, submit: Submit) -> None:
    """By what OpenAPI tells, so that the description and the check agree; the values may well be refused."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            names = [each["name"] for each in operation["parameters"] if each["in"] == "query"]
            if names and path.startswith("/v1/"):
                url = path.replace("{", "").replace("}", "")
                answer = client.open(url, method=method, query_string=dict.fromkeys(names, "1"))
                assert "unknown query parameter" not in answer.text, (path, answer.text)


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("limt=5", "did you mean 'limit'? Known are status, reason, limit, after"),
        ("Status=failed", "did you mean 'status'?"),
        ("limit=5&x-y=1", "unknown query parameter 'x-y'; did you mean"),
        ("=1", "unknown query parameter ''"),
    ],
)
def test_the_answer_names_the_nearest_parameter(client: FlaskClient, query: str, hint: str) -> None:
    problem: Any = client.get(f"/v1/turns?{query}").get_json()
    assert (problem["status"], problem["type"]) == (400, "/problems/malformed")
    assert hint in problem["detail"]


def test_an_operation_without_parameters_says_so(client: FlaskClient) -> None:
    assert client.get("/v1/queue/stats?limit=1").get_json()["detail"].endswith("this operation takes none")


def test_an_unknown_parameter_is_not_repeated_at_length(client: FlaskClient) -> None:
    assert len(client.get("/v1/turns?" + "x" * 5000 + "=1").get_json()["detail"]) < 250


def test_a_request_with_an_unknown_parameter_does_nothing(client: FlaskClient) -> None:
    assert client.post("/v1/sessions?dry_run=1", json={"id": "s"}).status_code == 400
    assert client.get("/v1/sessions/s").status_code == 404


def test_pages_and_probes_take_what_they_are_given(client: FlaskClient) -> None:
    for path in ("/healthz", "/", "/docs", "/openapi.json"):
        assert client.get(f"{path}?cache=1").status_code == 200


@pytest.mark.cases(
    ("query", "detail"),
    [
        ("limit=0", "limit must be at least 1"),
        ("limit=", "limit must be a whole number of 15 digits at most"),
        ("limit=%2B5", "limit must be a whole number of 15 digits at most"),
        ("status=done", "status must be one of queued, in_progress, requires_action"),
        (f"reason={'x' * 129}", "reason must have at most 128 characters"),
        ("reason=a%00b", "reason must have printable characters only"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused_by_name(client: FlaskClient, query: str, detail: str) -> None:
    problem: Any = client.get(f"/v1/turns?{query}").get_json()
    assert (problem["status"], problem["type"]) == (400, "/problems/malformed")
    assert problem["detail"].startswith(detail)


def test_an_empty_parameter_counts_as_absent_and_a_large_limit_as_the_largest(client: FlaskClient) -> None:
    assert client.get("/v1/turns?status=&reason=&after=&limit=100000").status_code == 200
