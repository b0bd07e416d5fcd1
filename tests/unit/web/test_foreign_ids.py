"""What belongs to others is not found: every operation of the served document is tried with somebody else's ids.

A new operation is tried without a word here. The tests fail for one whose path has a parameter, or whose body a schema,
that they know no value for, and for a new list that neither shows its owner's things nor is said to be shared.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder
from tests.support.belongings import Belongings, belongings
from tests.support.web_patterns import write_library
from tests.support.web_stage import WebStage

ALPHA, BETA = KeyHolder("alpha", ALL_SCOPES), KeyHolder("beta", ALL_SCOPES)
MARIA, JOHN = KeyHolder("alpha", ALL_SCOPES, "maria"), KeyHolder("alpha", ALL_SCOPES, "john")
STRANGERS = {
    "another workspace": (ALPHA, BETA),
    "another user": (MARIA, JOHN),
    "a user, and what the workspace has without one": (ALPHA, JOHN),
    "a user of that name in another workspace": (MARIA, KeyHolder("beta", ALL_SCOPES, "maria")),
}
"""Who owns something, and who asks for it."""

SCHEDULES = frozenset({"/v1/schedules", "/v1/schedules/{name}", "/v1/schedules/{name}/run"})
"""What files define for one workspace; who reaches it is tested in tests/unit/service/test_schedules.py."""
_LEARNED = "/v1/agents/{name}/learned"
LEARNED = frozenset({_LEARNED, *(f"{_LEARNED}/{end}" for end in ("{version}", "activate", "rollback"))})
"""A workspace's own, under the names of agents that all have; who reaches it is tested in test_learned.py."""
SHARED = (
    SCHEDULES
    | LEARNED
    | frozenset(
        {
            "/v1/agents",
            "/v1/agents/{name}",
            "/v1/agents/{name}/versions",
            "/v1/agents/{name}/versions/{version}",
            "/v1/agents/{name}/versions/{version}/diff",
            "/v1/agents/{name}/activate",
            "/v1/models",
            "/v1/tools",
            "/v1/patterns",
            "/v1/patterns/match",
            "/v1/patterns/{pattern_id}",
            "/v1/workflows",
            "/v1/workflows/{name}",
        }
    )
)
"""What is the same for everybody: it comes from the operator's files."""
OF_EVERYBODY = frozenset({"/v1/workflows/{name}/runs"})
"""What is named is shared, and what is made of it is one's own; tested on its own below."""
PLACES = frozenset({"stage_id"})
"""Parameters that name a place within what the one before them names; it has the same name in everybody's things."""
OF_A_NAME = frozenset({"/v1/users/{user}/facts", "/v1/users/{user}/facts/{fact_id}"})
"""A user of the same name in another workspace is another one; tested in test_facts.py."""
FIGURES = frozenset({"/v1/queue/stats"})
"""Figures without names; tested on their own below."""
OF_ALL_USERS = frozenset({"/v1/workspaces/{workspace}", "/v1/users/{user}"})
"""What no key reaches that acts for one user."""
QUERIES = {"/v1/usage": "?group_by=session"}
"""What lets a list show whose things are in it."""


@dataclass(frozen=True)
class Served:
    """An operation of the document."""

    method: str
    path: str
    parameters: tuple[str, ...]
    """Of its path."""
    body: str | None
    """Name of the body's schema."""
    has_cursor: bool

    def url(self, ids: dict[str, str]) -> str:
        return self.path.format(**ids) + QUERIES.get(self.path, "")


def served(client: FlaskClient) -> list[Served]:
    """All operations under /v1, those that delete at the end, one thing before all of its kind."""
    paths: dict[str, Any] = client.get("/openapi.json").get_json()["paths"]
    found = [
        Served(method.upper(), path, tuple(re.findall(r"{(\w+)}", path)), _body(described), _has_cursor(described))
        for path, ways in paths.items()
        for method, described in ways.items()
        if path.startswith("/v1/")
    ]

    def order(each: Served) -> tuple[bool, bool, int]:
        is_delete = each.method == "DELETE"
        return is_delete, each.path == "/v1/sessions/{session_id}", -each.path.count("/") if is_delete else 0

    return sorted(found, key=order)


def _body(described: dict[str, Any]) -> str | None:
    if "requestBody" not in described:
        return None
    reference: str = described["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    return reference.rpartition("/")[2]


def _has_cursor(described: dict[str, Any]) -> bool:
    return any(parameter["name"] == "after" for parameter in described["parameters"])


def body_of(operation: Served, owner: Belongings) -> Any:
    """A body that the operation accepts; where it names something, that is the owner's."""
    known = {
        "NewTurn": {"input": "x"},
        "SessionPatch": {"title": "changed"},
        "WorkspacePatch": {"budget": {"tokens": 10_000}},
        "Recall": {"message_ids": [owner.ids["message_id"]]},
        "CancelTurn": {"action": "interrupt"},
        "Decision": {"decision": "approve"},
        "RotateKey": {"grace_s": 60},
        "NewToken": {"ttl_s": 60},
        "NewRun": {"input": "x"},
        "CancelRun": {"action": "interrupt"},
        "RunDecision": {"decision": "approve"},
        "FactPatch": {"object": "x"},
        "Empty": {},
    }
    if operation.body is None:
        return None
    assert operation.body in known, f"{operation.path}: say what a valid {operation.body} is"
    return known[operation.body]


def ask(client: FlaskClient, who: Belongings, operation: Served, url: str, body: Any = None) -> TestResponse:
    sent = {} if body is None else {"json": body}
    return client.open(url, method=operation.method, headers={"Authorization": f"Bearer {who.secret}"}, **sent)


@dataclass(frozen=True)
class Two:
    """Who owns something, and who asks for it; both have one of everything."""

    owner: Belongings
    stranger: Belongings


@pytest.fixture(params=STRANGERS)
def two(request: pytest.FixtureRequest, stage: WebStage) -> Two:
    write_library(stage)
    owner, stranger = STRANGERS[request.param]
    return Two(belongings(stage, owner, "ours7f3"), belongings(stage, stranger, "theirs9c1"))


def foreign_ids(operation: Served, two: Two) -> Iterator[dict[str, str]]:
    """The ids of an operation's path, each the owner's or the stranger's, but never all of them the stranger's."""
    unknown = [name for name in operation.parameters if name not in two.owner.ids]
    assert unknown == [], f"{operation.path}: add such a thing to tests/support/belongings.py, or the path to SHARED"
    names = [name for name in operation.parameters if name not in PLACES]
    places = {name: two.owner.ids[name] for name in operation.parameters if name in PLACES}
    for whose in itertools.product((two.owner, two.stranger), repeat=len(names)):
        if two.owner in whose:
            yield {name: each.ids[name] for name, each in zip(names, whose, strict=True)} | places


def test_a_foreign_id_is_not_found_by_any_operation_and_nothing_of_it_changes(client: FlaskClient, two: Two) -> None:
    operations = [
        each for each in served(client) if each.parameters and each.path not in SHARED | OF_EVERYBODY | OF_A_NAME
    ]
    before = shown(client, two.owner, operations)
    for operation in operations:
        if is_name_free(operation, two):
            continue
        body = body_of(operation, two.owner)
        for ids in foreign_ids(operation, two):
            answer = ask(client, two.stranger, operation, operation.url(ids), body)
            assert answer.status_code == 404, (operation.method, operation.path, ids, answer.text)
            told = answer.get_json()["detail"]
            for asked in ids.values():
                told = told.replace(asked, "")
            assert two.owner.marker not in told
    assert shown(client, two.owner, operations) == before


def is_name_free(operation: Served, two: Two) -> bool:
    """True where a session would be made: in another workspace its name is free."""
    return two.owner.holder.workspace != two.stranger.holder.workspace and is_maker(operation)


def is_maker(operation: Served) -> bool:
    """True where the session that is named is made if there is none."""
    return (operation.method, operation.path) == ("POST", "/v1/sessions/{session_id}/turns")


def test_a_session_of_the_same_name_in_another_workspace_is_another_one(client: FlaskClient, stage: WebStage) -> None:
    ours, theirs = belongings(stage, ALPHA, "ours7f3"), belongings(stage, BETA, "theirs9c1")
    url = f"/v1/sessions/{ours.ids['session_id']}"
    headers = {"Authorization": f"Bearer {theirs.secret}"}
    assert client.post(f"{url}/turns", json={"input": "x"}, headers=headers).status_code == 202
    made = client.get(url, headers=headers).get_json()
    assert (made["title"], made["queue_depth"]) == (None, 1)
    assert client.get(f"{url}/messages", headers=headers).get_json()["data"] == []


def shown(client: FlaskClient, owner: Belongings, operations: list[Served]) -> dict[str, str]:
    """All that the owner sees under these ids; each must be there, or a 404 would prove nothing."""
    found = {}
    for operation in operations:
        if operation.method == "GET" and not operation.path.endswith("/events") and is_reached(operation, owner):
            answer = ask(client, owner, operation, operation.url(dict(owner.ids)))
            assert answer.status_code == 200, (operation.path, answer.text)
            found[operation.path] = answer.text
    return found


def is_reached(operation: Served, owner: Belongings) -> bool:
    """False for what is of all users and the owner is one of them."""
    return owner.holder.user is None or operation.path not in OF_ALL_USERS


def test_a_run_of_a_shared_workflow_is_its_starter_s_own(client: FlaskClient, two: Two) -> None:
    mine, theirs = ({"Authorization": f"Bearer {each.secret}"} for each in (two.owner, two.stranger))
    headers = {**mine, "Idempotency-Key": "k"}
    run = client.post("/v1/workflows/gated/runs", json={"input": "x"}, headers=headers).get_json()
    assert client.get(f"/v1/runs/{run['id']}", headers=mine).status_code == 200
    assert client.get(f"/v1/runs/{run['id']}", headers=theirs).status_code == 404
    again = client.post("/v1/workflows/gated/runs", json={"input": "x"}, headers={**theirs, "Idempotency-Key": "k"})
    assert (again.status_code, again.get_json()["id"] == run["id"]) == (202, False)


def test_the_owner_finds_each_of_these_things(client: FlaskClient, two: Two) -> None:
    for operation in served(client):
        is_stream = operation.path.endswith("/events")
        if operation.parameters and operation.path not in SHARED and not is_stream and is_reached(operation, two.owner):
            url = operation.url(dict(two.owner.ids))
            answer = ask(client, two.owner, operation, url, body_of(operation, two.owner))
            assert answer.status_code < 500
            assert answer.status_code not in (401, 403, 404, 422), (operation.method, operation.path, answer.text)


def test_a_list_holds_nothing_of_others(client: FlaskClient, two: Two) -> None:
    lists = [each for each in served(client) if each.method == "GET" and not each.parameters]
    own = [each for each in lists if each.path not in SHARED | FIGURES]
    assert own
    for operation in own:
        url = operation.url({})
        assert two.owner.marker in ask(client, two.owner, operation, url).text, f"{operation.path}: shared, or broken?"
        theirs = ask(client, two.stranger, operation, url)
        assert theirs.status_code == 200
        assert two.stranger.marker in theirs.text
        assert two.owner.marker not in theirs.text, operation.path


def test_a_foreign_cursor_leads_to_nothing_of_others(client: FlaskClient, two: Two) -> None:
    lists = [each for each in served(client) if each.has_cursor]
    assert lists
    for operation, cursor in itertools.product(lists, two.owner.ids.values()):
        path = operation.path.format(**two.stranger.ids)
        answer = ask(client, two.stranger, operation, f"{path}?after={cursor}")
        assert answer.status_code in (200, 404, 422)
        assert answer.status_code != 200 or two.owner.marker not in answer.text, operation.path


def test_a_foreign_id_in_a_filter_or_a_body_finds_nothing(client: FlaskClient, two: Two) -> None:
    headers = {"Authorization": f"Bearer {two.stranger.secret}"}
    errors = client.get(f"/v1/errors?session={two.owner.ids['session_id']}", headers=headers)
    assert (errors.status_code, errors.get_json()["data"]) == (200, [])
    usage = client.get(f"/v1/usage?session={two.owner.ids['session_id']}", headers=headers)
    assert (usage.status_code, usage.get_json()["data"]) == (200, [])
    recalled = f"/v1/sessions/{two.stranger.ids['session_id']}/recalled"
    answer = client.post(recalled, json={"message_ids": [two.owner.ids["message_id"]]}, headers=headers)
    assert answer.status_code == 422
    assert "ours7f3" not in answer.text


def test_figures_count_the_own_turns_alone(client: FlaskClient, two: Two) -> None:
    stats = client.get("/v1/queue/stats", headers={"Authorization": f"Bearer {two.stranger.secret}"}).get_json()
    assert (stats["lanes"], stats["waiting"], stats["oldest_waiting_for"]) == (1, 1, "person")
    usage = client.get("/v1/usage", headers={"Authorization": f"Bearer {two.stranger.secret}"}).get_json()["data"]
    assert [row["turns"] for row in usage] == [2]  # one of the session, one of the run


def test_what_a_user_spent_stays_the_user_s_when_the_name_of_the_session_is_used_again(
    client: FlaskClient, stage: WebStage
) -> None:
    maria, john = belongings(stage, MARIA, "m1"), belongings(stage, JOHN, "j1")
    stage.service.delete_session("alpha", maria.ids["session_id"])
    belongings(stage, JOHN, "m1")
    usage = client.get("/v1/usage?group_by=session", headers={"Authorization": f"Bearer {john.secret}"})
    turns = {row["key"]: row["turns"] for row in usage.get_json()["data"]}
    assert {key: count for key, count in turns.items() if not key.startswith("gated:")} == {"s-j1": 1, "s-m1": 1}


NOTHING = ("none_0", "a b", "%00", "a%0A", "é", "%ff", "x_%25", "x" * 300)
"""Ids, as they stand in a path, that nothing has or can have."""


@pytest.fixture
def owner(stage: WebStage) -> Belongings:
    write_library(stage)
    return belongings(stage, ALPHA, "ours7f3")


def test_an_id_of_nothing_is_not_found_by_any_operation(client: FlaskClient, owner: Belongings) -> None:
    bad = []
    for operation in served(client):
        if not operation.parameters or operation.path in SHARED | OF_A_NAME or is_maker(operation):
            continue
        body = body_of(operation, owner)
        for name, nothing in itertools.product(operation.parameters, NOTHING):
            ids = {**owner.ids, "name": "gated", name: nothing}
            answer = ask(client, owner, operation, operation.url(ids), body)
            if answer.status_code != 404:
                bad.append((operation.method, operation.path, name, nothing, answer.status_code))
    assert bad == [], bad


NO_COUNTS = ("0", "-1", "x", "1.5", "", "1e3", "%2B5")


def test_a_page_that_cannot_be_is_refused_by_every_list(client: FlaskClient, owner: Belongings) -> None:
    lists = [each for each in served(client) if each.has_cursor and each.path not in SHARED]
    wrong = {f"limit={each}": 400 for each in NO_COUNTS} | {"after=%00": 400, "after=a%0Ab": 400, "after=bogus": 422}
    bad = []
    for operation, (query, status) in itertools.product(lists, wrong.items()):
        url = operation.url(dict(owner.ids))
        answer = ask(client, owner, operation, f"{url}{'&' if '?' in url else '?'}{query}")
        flaw = {"pointer": "/after", "detail": "must be the `next` of a page of this list"}
        assert status != 422 or answer.status_code != 422 or answer.get_json()["errors"] == [flaw]
        if answer.status_code != status and (operation.path, query) != ("/v1/pairings", "after=bogus"):
            bad.append((operation.method, operation.path, query, answer.status_code))  # any id of a pairing is a place
    assert bad == [], bad


def wrong_values(schema: Any) -> tuple[str, ...]:
    """Values, as they stand in a URL, that a parameter of a query cannot have."""
    if "enum" in schema:
        return ("nothing",)
    if schema["type"] == "integer":
        return NO_COUNTS if schema["minimum"] else NO_COUNTS[1:]
    return ("yesterday",) if schema.get("format") == "date-time" else ("x" * 5000, "a%00b")


def test_a_parameter_that_cannot_be_is_refused_by_every_operation(client: FlaskClient, owner: Belongings) -> None:
    bad = []
    paths: dict[str, Any] = client.get("/openapi.json").get_json()["paths"]
    for operation in (each for each in served(client) if each.path not in SHARED or not each.parameters):
        for parameter in paths[operation.path][operation.method.lower()]["parameters"]:
            if parameter["in"] != "query":
                continue
            is_question = parameter["name"] == "q"  # of any characters
            for wrong in wrong_values(parameter["schema"])[: 1 if is_question else None]:
                url = f"{operation.path.format(**owner.ids)}?{parameter['name']}={wrong}"
                answer = ask(client, owner, operation, url)
                if answer.status_code not in (400, 422):
                    bad.append((operation.method, operation.path, parameter["name"], wrong[:9], answer.status_code))
    assert bad == [], bad
