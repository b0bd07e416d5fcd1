import json
import re
from dataclasses import replace
from typing import Any, get_type_hints

import pytest
from flask import Flask
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator

from loom_worker import __version__
from loom_worker.core.values.calls import Call
from loom_worker.core.values.patterns import Effect
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.turns import NewTurn
from loom_worker.patterns.events import LibraryEvents
from loom_worker.patterns.live import LiveLibrary
from loom_worker.store.agent_errors import NewAgentError
from tests.support.callers import CALLER
from tests.support.pattern_files import write
from tests.support.until import until
from tests.support.web_patterns import TOP, keep_effect, write_library
from tests.support.web_stage import Submit, WebStage
from tests.unit.web.described import DOCUMENT, schema_of
from web.app import OPERATIONS
from web.query import PageQuery
from web.turns import NewTurnBody

BY_CALL = {operation.call: operation for operation in OPERATIONS}


def test_every_route_is_in_the_document_and_nothing_else(app: Flask) -> None:
    routes = {
        (method, re.sub(r"<(?:path:)?(\w+)>", r"{\1}", rule.rule))
        for rule in app.url_map.iter_rules()
        for method in rule.methods or ()
        if method not in ("HEAD", "OPTIONS")
    }
    told = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert told == routes


def test_every_schema_is_sound_and_every_reference_leads_somewhere() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for name in re.findall(r"#/components/schemas/(\w+)", json.dumps(DOCUMENT)):
        assert name in DOCUMENT["components"]["schemas"]


def test_every_schema_is_used() -> None:
    used = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(DOCUMENT)))
    assert used == DOCUMENT["components"]["schemas"].keys()


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


def test_the_document_names_the_server_and_the_products_version() -> None:
    assert DOCUMENT["servers"][0]["url"] == "/"
    assert DOCUMENT["info"]["version"] == __version__


@pytest.mark.cases("call", [call for call in BY_CALL if "/v1/" in call or "/a2a/" in call])
def test_every_operation_has_an_example_that_is_as_its_schema_says(call: str) -> None:
    operation = BY_CALL[call]
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]
    bodies = [described.get("requestBody", {}), *described["responses"].values()]
    media = [media for body in bodies for media in body.get("content", {}).values() if "example" in media]
    in_path = [each for each in described["parameters"] if "example" in each]
    assert media or in_path
    for each in (*media, *in_path):
        Draft202012Validator({**each["schema"], "components": DOCUMENT["components"]}).validate(each["example"])


@pytest.mark.cases("call", [call for call, operation in BY_CALL.items() if operation.body])
def test_the_example_of_a_body_is_taken(call: str) -> None:
    operation = BY_CALL[call]
    body = DOCUMENT["paths"][operation.path][operation.method.lower()]["requestBody"]["content"]["application/json"]
    app = Flask("examples")
    app.add_url_rule(operation.rule, view_func=lambda **ids: "")
    with app.test_request_context(operation.path.replace("{", "").replace("}", "")):
        assert operation.body is not None
        assert operation.body.of(body["example"]).given == body["example"]


def test_the_document_is_served(client: FlaskClient) -> None:
    assert client.get("/openapi.json").get_json() == json.loads(json.dumps(DOCUMENT))


CALLS: list[tuple[str, str, str, Any]] = [
    ("POST", "/v1/sessions", "/v1/sessions", {"id": "new"}),
    ("POST", "/v1/sessions", "/v1/sessions", {"id": "s1"}),
    ("POST", "/v1/sessions", "/v1/sessions", {"nope": 1}),
    ("GET", "/v1/sessions", "/v1/sessions", None),
    ("GET", "/v1/sessions/s1", "/v1/sessions/{session_id}", None),
    ("GET", "/v1/sessions/none", "/v1/sessions/{session_id}", None),
    ("PATCH", "/v1/sessions/s1", "/v1/sessions/{session_id}", {"title": "t", "budget": {"usd": 1}}),
    ("GET", "/v1/sessions/s1/messages", "/v1/sessions/{session_id}/messages", None),
    ("GET", "/v1/sessions/s1/search?q=hello", "/v1/sessions/{session_id}/search", None),
    ("GET", "/v1/sessions/s1/search?limit=0", "/v1/sessions/{session_id}/search", None),
    ("PATCH", "/v1/sessions/s1", "/v1/sessions/{session_id}", {"tools": ["clock"], "backend": "north"}),
    ("PATCH", "/v1/sessions/s1", "/v1/sessions/{session_id}", {"tools": ["axe"], "agent": "other@latest"}),
    ("GET", "/v1/sessions/s1/context", "/v1/sessions/{session_id}/context", None),
    ("GET", "/v1/sessions/none/context", "/v1/sessions/{session_id}/context", None),
    ("POST", "/v1/sessions/s1/recalled", "/v1/sessions/{session_id}/recalled", {"message_ids": ["msg_1"]}),
    ("DELETE", "/v1/sessions/s1/recalled", "/v1/sessions/{session_id}/recalled", None),
    ("GET", "/v1/sessions/s1/snapshots", "/v1/sessions/{session_id}/snapshots", None),
    ("POST", "/v1/sessions/s1/turns", "/v1/sessions/{session_id}/turns", {"input": "x"}),
    ("POST", "/v1/sessions/s1/turns", "/v1/sessions/{session_id}/turns", {}),
    ("GET", "/v1/sessions/s1/turns", "/v1/sessions/{session_id}/turns", None),
    ("GET", "/v1/turns", "/v1/turns", None),
    ("GET", "/v1/turns?status=nope", "/v1/turns", None),
    ("POST", "/v1/turns/none/cancel", "/v1/turns/{turn_id}/cancel", None),
    ("POST", "/v1/turns/none/cancel", "/v1/turns/{turn_id}/cancel", {"action": "nope"}),
    ("POST", "/v1/turns/none/retry", "/v1/turns/{turn_id}/retry", None),
    ("POST", "/v1/turns/none/approvals/none", "/v1/turns/{turn_id}/approvals/{call_id}", {"decision": "approve"}),
    ("POST", "/v1/turns/none/approvals/none", "/v1/turns/{turn_id}/approvals/{call_id}", {}),
    ("GET", "/v1/errors?session=s1&since=2026-11-21T09:30:00Z", "/v1/errors", None),
    ("GET", "/v1/errors?until=yesterday", "/v1/errors", None),
    ("GET", "/v1/errors?after=nowhere", "/v1/errors", None),
    ("GET", "/v1/sessions?after=nowhere", "/v1/sessions", None),
    ("GET", "/v1/sessions/s1/messages?after=nowhere", "/v1/sessions/{session_id}/messages", None),
    ("GET", "/v1/errors/{error}", "/v1/errors/{error_id}", None),
    ("GET", "/v1/errors/none", "/v1/errors/{error_id}", None),
    ("GET", "/v1/blobs/none", "/v1/blobs/{ref}", None),
    ("GET", "/v1/agents", "/v1/agents", None),
    ("GET", "/v1/agents/default", "/v1/agents/{name}", None),
    ("GET", "/v1/tools", "/v1/tools", None),
    ("GET", "/v1/tools?agent=nobody", "/v1/tools", None),
    ("GET", "/v1/patterns?category=sql", "/v1/patterns", None),
    ("GET", "/v1/patterns?category=%00", "/v1/patterns", None),
    ("GET", "/v1/patterns/match?q=top+ten+release+notes&k=2&agent=default", "/v1/patterns/match", None),
    ("GET", "/v1/patterns/match?k=0", "/v1/patterns/match", None),
    ("GET", "/v1/patterns/match?agent=nobody", "/v1/patterns/match", None),
    ("GET", "/v1/patterns/sql/top_n", "/v1/patterns/{pattern_id}", None),
    ("GET", "/v1/patterns/writing/en/notes", "/v1/patterns/{pattern_id}", None),
    ("GET", "/v1/patterns/sql/none", "/v1/patterns/{pattern_id}", None),
    ("GET", "/v1/usage", "/v1/usage", None),
    ("GET", "/v1/queue/stats", "/v1/queue/stats", None),
    ("GET", "/v1/deliveries", "/v1/deliveries", None),
    ("GET", "/healthz", "/healthz", None),
    ("GET", "/readyz", "/readyz", None),
]


@pytest.fixture(autouse=True)
def _library(stage: WebStage) -> None:
    write_library(stage)


@pytest.mark.parametrize(("method", "url", "path", "body"), CALLS)
def test_answers_are_as_described(
    client: FlaskClient, submit: Submit, stage: WebStage, method: str, url: str, path: str, body: Any
) -> None:
    turn = stage.worker.finish(submit("s1", webhook="https://hooks.example/")["id"])
    failed = NewAgentError(turn.lane, turn.id, "look", "no", {"message": "no"})
    url = url.format(error=stage.service.agent_errors.store(failed, now_ms=1_795_253_400_000))
    answer = client.open(url, method=method, json=body) if body is not None else client.open(url, method=method)
    schema_of(path, method, answer.status_code, answer.mimetype).validate(answer.get_json())


def test_a_library_with_errors_and_a_used_pattern_are_as_described(client: FlaskClient, stage: WebStage) -> None:
    write(stage.patterns, sql__a="name: a\n\n\tb: c\n")
    LiveLibrary(stage.patterns, listener=LibraryEvents(stage.redis, process="w1")).patterns()
    stage.bring_worker()
    until(stage.service.patterns.loaded, 10, "the worker has told what it loaded")
    keep_effect(stage, "default", TOP.id, TOP.digest, Effect(42, 30, 10, 1.5, 9000, 1_795_253_400_000))
    assert client.get("/v1/patterns").get_json()["errors"]
    assert client.get("/v1/patterns").get_json()["processes"]
    for url, path in (("/v1/patterns", "/v1/patterns"), (f"/v1/patterns/{TOP.id}", "/v1/patterns/{pattern_id}")):
        schema_of(path, "GET", 200, "application/json").validate(client.get(url).get_json())


def test_an_answer_has_no_member_that_is_not_described(client: FlaskClient, stage: WebStage) -> None:
    schemas = DOCUMENT["components"]["schemas"]
    found = client.get("/v1/patterns/match?q=top+ten").get_json()["data"][0]
    assert found.keys() == schemas["PatternMatch"]["properties"].keys()
    listed = client.get("/v1/patterns").get_json()
    assert listed.keys() == schemas["PatternList"]["properties"].keys()
    assert listed["data"][0].keys() == schemas["PatternList"]["properties"]["data"]["items"]["properties"].keys()
    whole = client.get(f"/v1/patterns/{TOP.id}").get_json()
    assert whole.keys() == schemas["Pattern"]["properties"].keys()


def test_a_cancelled_and_a_retried_turn_are_as_described(client: FlaskClient, submit: Submit, stage: WebStage) -> None:
    running, failed = submit("s1")["id"], submit("s2")["id"]
    stage.worker.start(running)
    stage.worker.die(failed)
    for turn_id, action in ((running, "cancel"), (running, "retry"), (failed, "cancel"), (failed, "retry")):
        answer = client.post(f"/v1/turns/{turn_id}/{action}")
        validator = schema_of(f"/v1/turns/{{turn_id}}/{action}", "POST", answer.status_code, answer.mimetype)
        validator.validate(answer.get_json())


@pytest.mark.parametrize("status", [200, 409])
def test_a_decision_on_a_tool_call_is_as_described(
    client: FlaskClient, submit: Submit, stage: WebStage, status: int
) -> None:
    turn_id = submit("s1")["id"]
    approval = "waiting" if status == 200 else "approved"
    stage.worker.ask_person(turn_id, Call("toolu_1", "pay", {}, 0, 1, approval=approval, approve_by_ms=1))
    answer = client.post(f"/v1/turns/{turn_id}/approvals/toolu_1", json={"decision": "approve"})
    assert answer.status_code == status
    path = "/v1/turns/{turn_id}/approvals/{call_id}"
    schema_of(path, "POST", answer.status_code, answer.mimetype).validate(answer.get_json())


def test_every_answer_of_a_download_is_described(client: FlaskClient, stage: WebStage) -> None:
    lane = stage.service.create_session("default", NewSession(id="s1")).lane
    whose = replace(CALLER, lane=lane, workspace="default", session_id="s1")
    stored = stage.service.references.keep("0123456789", "text/csv", whose, tool="look", count=len)
    assert stored is not None
    kept = stored.reference
    asked = [{}, {"Range": "bytes=0-4"}, {"If-None-Match": f'"{kept.checksum}"'}, {"Range": "bytes=99-"}]
    answers = [client.get(f"/v1/blobs/{kept.id}", headers=headers) for headers in asked]
    assert [answer.status_code for answer in answers] == [200, 206, 304, 416]
    operation = DOCUMENT["paths"]["/v1/blobs/{ref}"]["get"]
    told = operation["responses"]
    assert {"200", "206", "304", "404", "416"} <= told.keys()
    assert [list(told[status].get("content", {})) for status in ("200", "206", "304")] == [["*/*"], ["*/*"], []]
    used = {name for headers in asked for name in headers}
    assert used <= {parameter["name"] for parameter in operation["parameters"]}


def test_what_double_texting_may_be_is_what_the_seam_takes() -> None:
    assert get_type_hints(NewTurn)["double_texting"] == get_type_hints(NewTurnBody)["double_texting"]


def test_a_body_is_required_where_there_is_something_to_say() -> None:
    needed = {path: way["post"]["requestBody"]["required"] for path, way in DOCUMENT["paths"].items() if "post" in way}
    assert [path for path, is_required in needed.items() if is_required] == [
        "/v1/sessions",
        "/v1/sessions/{session_id}/recalled",
        "/v1/sessions/{session_id}/turns",
        "/v1/turns/{turn_id}/approvals/{call_id}",
        "/v1/files",
        "/v1/agents/{name}/activate",
        "/v1/agents/{name}/learned",
        "/v1/agents/{name}/learned/activate",
        "/v1/workflows/{name}/runs",
        "/v1/runs/{run_id}/approvals/{stage_id}",
        "/v1/keys",
        "/v1/pairings",
        "/a2a/{name}",
    ]


def test_every_list_with_cursors_may_refuse_one() -> None:
    told = {
        operation.path: DOCUMENT["paths"][operation.path]["get"]["responses"].keys()
        for operation in OPERATIONS
        if operation.query and issubclass(operation.query, PageQuery)
    }
    assert len(told) == 26
    assert [path for path, statuses in told.items() if "422" not in statuses] == []
