import pytest
from flask import Flask
from flask.testing import FlaskClient

from loom_worker.core.errors import (
    BudgetExceeded,
    Conflict,
    Flaw,
    Invalid,
    NotFound,
    Overloaded,
    QueueFull,
    Rejected,
    Unavailable,
)
from tests.support.web_stage import WebStage
from web.problems import problem_of


@pytest.mark.cases(
    ("error", "status", "slug", "detail"),
    [
        (NotFound("no such turn"), 404, "not-found", "no such turn"),
        (Conflict("it exists"), 409, "conflict", "it exists"),
        (Conflict("it is archived", "session-archived"), 409, "session-archived", "it is archived"),
        (Invalid("bad", (Flaw("/a", "is bad"),)), 422, "invalid", "bad"),
        (Invalid("other body", (), "idempotency-mismatch"), 422, "idempotency-mismatch", "other body"),
        (Invalid("bad as a whole"), 422, "invalid", "bad as a whole"),
        (QueueFull("full", 2.2), 429, "queue-full", "full"),
        (Rejected("no"), 400, "rejected", "no"),
        (Unavailable("database away"), 503, "unavailable", "database away"),
        (Unavailable("the disk is full", "storage-full"), 503, "storage-full", "the disk is full"),
        (Overloaded("busy", 7), 503, "unavailable", "busy"),
    ],
)
def test_an_error_becomes_its_status(error: Exception, status: int, slug: str, detail: str) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.slug, problem.detail) == (status, slug, detail)


@pytest.mark.cases(
    ("error", "retry_after"),
    [(QueueFull("full", 2.2), "3"), (Overloaded("x", 7), "7"), (Overloaded("x", None), "1"), (Unavailable("x"), "1")],
)
def test_a_busy_answer_says_when_to_come_back(error: Exception, retry_after: str) -> None:
    assert problem_of(error).headers["Retry-After"] == retry_after


def test_what_waiting_does_not_mend_names_no_time_to_come_back() -> None:
    spent = problem_of(QueueFull("the budget is spent", None, "budget-exceeded"))
    assert (spent.status, spent.slug) == (429, "budget-exceeded")
    assert "Retry-After" not in spent.headers


def test_flaws_are_told_one_by_one() -> None:
    problem = problem_of(Invalid("bad", (Flaw("/a", "is bad"), Flaw("/b", "too"))))
    assert problem.extra["errors"] == [{"pointer": "/a", "detail": "is bad"}, {"pointer": "/b", "detail": "too"}]


@pytest.mark.parametrize("error", [KeyError("password=hunter2"), BudgetExceeded("inner detail")])
def test_a_bug_keeps_its_text_inside(app: Flask, caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    def broken() -> None:
        raise error

    app.add_url_rule("/v1/broken", view_func=broken)
    answer = app.test_client().get("/v1/broken", headers={"X-Request-Id": "req-77"})
    assert (answer.status_code, answer.mimetype) == (500, "application/problem+json")
    assert "hunter2" not in answer.text
    assert "inner detail" not in answer.text
    assert "req-77" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status", "slug"),
    [
        ("GET", "/nowhere", 404, "not-found"),
        ("GET", "/v1/turns/turn_none", 404, "not-found"),
        ("DELETE", "/v1/turns", 405, "method-not-allowed"),
        ("PUT", "/v1/sessions/s", 405, "method-not-allowed"),
        ("POST", "/v1/sessions", 415, "unsupported-media-type"),
        ("GET", "/v1/turns/%ff%00", 404, "not-found"),
    ],
)
def test_every_error_is_problem_json(client: FlaskClient, method: str, path: str, status: int, slug: str) -> None:
    answer = client.open(path, method=method)
    body = answer.get_json()
    assert (answer.status_code, answer.mimetype) == (status, "application/problem+json")
    assert body["type"] == f"/problems/{slug}"
    assert body["status"] == status
    assert {"title", "detail", "instance"} <= body.keys()
    assert body["request_id"] == answer.headers["X-Request-Id"]


def test_a_refused_method_tells_the_allowed_ones(client: FlaskClient) -> None:
    assert set(client.delete("/v1/turns").headers["Allow"].split(", ")) >= {"GET"}


def test_a_database_that_is_away_is_503_everywhere(client: FlaskClient, stage: WebStage) -> None:
    stage.database.is_down = True
    for path in ("/v1/sessions", "/v1/turns", "/v1/turns/turn_1", "/v1/turns/turn_1/events", "/v1/queue/stats"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
