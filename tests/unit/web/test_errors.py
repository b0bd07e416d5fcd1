"""The views of stored errors alone, whoever asks."""

from typing import Any
from urllib.parse import quote

import pytest
from flask import Flask, g, request
from flask.testing import FlaskClient

from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder
from loom_worker.core.values.sessions import NewSession
from loom_worker.service.service import Service
from loom_worker.store.agent_errors import AgentErrors, NewAgentError
from loom_worker.store.database import Database
from loom_worker.store.sessions import Sessions
from web import problems
from web.caller import ApiCaller
from web.connection_limits import ConnectionLimiter
from web.query import PeriodQuery
from web.results import ErrorViews

AT_MS = 1_795_253_400_000
"""2026-11-21T09:30:00Z."""


@pytest.fixture
def client(service: Service) -> FlaskClient:
    app = Flask("errors", static_folder=None)
    ErrorViews(service, ConnectionLimiter(slots=1)).mount(app)

    @app.before_request
    def name_the_caller() -> None:
        g.caller = ApiCaller(KeyHolder(request.headers.get("X-Workspace", "acme"), ALL_SCOPES), "req_1", "")

    app.register_error_handler(Exception, problems.answer)
    return app.test_client()


@pytest.fixture
def made(database: Database) -> list[str]:
    """Ids of six errors, a second apart: of two sessions in turn, every third of another tool."""
    lanes = [Sessions(database).create("acme", NewSession(id=f"s{n}"), now_ms=1).lane for n in range(2)]
    new = [
        NewAgentError(
            lanes[n % 2], "turn_1", "find" if n % 3 == 2 else "look", "no", {"message": f"m{n}"}, "00f067aa0ba902b7"
        )
        for n in range(6)
    ]
    return [AgentErrors(database).store(each, now_ms=AT_MS + 1000 * n) for n, each in enumerate(new)]


def ids(client: FlaskClient, query: str = "", **headers: Any) -> list[str]:
    answer = client.get(f"/v1/errors{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    return [error["id"] for error in answer.get_json()["data"]]


def test_an_error_is_answered_with_all_that_is_kept_of_it(client: FlaskClient, made: list[str]) -> None:
    answer = client.get(f"/v1/errors/{made[1]}")
    assert (answer.status_code, answer.get_json()) == (
        200,
        {
            "id": made[1],
            "object": "error",
            "session_id": "s1",
            "turn_id": "turn_1",
            "span_id": "00f067aa0ba902b7",
            "tool_name": "look",
            "timestamp": "2026-11-21T09:30:01.000Z",
            "short_summary": "no",
            "raw_error": {"message": "m1"},
        },
    )


def test_errors_are_filtered_by_session_tool_and_time(client: FlaskClient, made: list[str]) -> None:
    assert ids(client) == made[::-1]
    assert ids(client, "?session=s1") == [made[5], made[3], made[1]]
    assert ids(client, "?tool=find&session=s1") == [made[5]]
    assert ids(client, "?since=2026-11-21T09:30:01Z&until=2026-11-21T09:30:03Z") == [made[2], made[1]]
    assert ids(client, f"?since={quote('2026-11-21T10:30:04.000+01:00')}") == [made[5], made[4]]
    assert ids(client, "?session=nobody") == []


def test_errors_come_in_pages(client: FlaskClient, made: list[str]) -> None:
    first = client.get("/v1/errors?limit=4").get_json()
    assert (first["object"], first["has_more"]) == ("list", True)
    rest = client.get(f"/v1/errors?limit=4&after={first['next']}").get_json()
    assert [error["id"] for error in first["data"] + rest["data"]] == made[::-1]
    assert (rest["has_more"], rest["next"]) == (False, None)


WRONG = ["yesterday", "2026-11-21", "2026-11-21T09:30:00", "2026-02-30T09:30:00Z", "2026-11-21T25:00:00Z", "1795253400"]
WRONG += ["2026-11-21T09:30:00Z\n", "٢026-11-21T09:30:00Z", "2026-11-21T09:30:00.Z", "2026-11-21T09:30:00+99:00", "\0"]


@pytest.mark.cases("name", ["since", "until"])
@pytest.mark.cases("moment", WRONG)
def test_what_is_no_time_is_refused(client: FlaskClient, name: str, moment: str) -> None:
    answer = client.get("/v1/errors", query_string={name: moment})
    assert (answer.status_code, answer.get_json()["type"]) == (400, "/problems/malformed")
    assert name in answer.get_json()["detail"]


@pytest.mark.cases(
    ("moment", "at_ms"),
    [
        ("2026-11-21T09:30:00Z", AT_MS),
        ("2026-11-21t10:30:00.5+01:00", AT_MS + 500),
        ("2026-11-21T10:30:00.123456789 01:00", AT_MS + 123),
        ("1969-12-31T23:59:59z", -1000),
        ("0001-01-01T00:00:00+14:00", -62135647200000),
        ("9999-12-31T23:59:59-14:00", 253402351199000),
        ("", None),
    ],
)
def test_a_time_is_read_to_the_millisecond(moment: str, at_ms: int | None) -> None:
    with Flask("times").test_request_context("/", query_string={"since": moment}):
        assert PeriodQuery.read().since == at_ms
