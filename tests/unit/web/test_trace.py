"""A turn's spans over HTTP, while it runs and after."""

from datetime import datetime

import pytest
from flask.testing import FlaskClient

from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder, NewKey
from loom_worker.core.values.calls import Call
from loom_worker.core.values.json import Json
from tests.support.played_worker import PlayedWorker
from tests.support.web_stage import Submit, WebStage

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT_SPAN = "00f067aa0ba902b7"


def spans_of(client: FlaskClient, turn_id: str) -> list[Json]:
    answer = client.get(f"/v1/turns/{turn_id}/trace")
    assert answer.status_code == 200, answer.text
    page = answer.get_json()
    assert (page["object"], page["has_more"], page["next"]) == ("list", False, None)
    return list(page["data"])


@pytest.fixture
def ended(submit: Submit, worker: PlayedWorker) -> str:
    turn_id = str(submit()["id"])
    worker.finish(turn_id, "42")
    return turn_id


def test_a_queued_turn_waits_and_its_request_is_over(client: FlaskClient, submit: Submit) -> None:
    spans = spans_of(client, submit()["id"])
    assert [(span["name"], span["end_time"] is None, span["status"]) for span in spans] == [
        ("http.request", False, "OK"),
        ("agent.chat", True, "Unset"),
        ("lane.wait", True, "Unset"),
    ]
    assert [span["duration_ms"] is None for span in spans] == [False, True, True]


def test_a_running_turn_has_a_run_without_an_end(client: FlaskClient, submit: Submit, worker: PlayedWorker) -> None:
    turn_id = submit()["id"]
    worker.start(turn_id)
    spans = {span["name"]: span for span in spans_of(client, turn_id)}
    assert [name for name, span in spans.items() if span["end_time"] is None] == ["agent.chat", "turn.run"]
    assert spans["turn.run"]["attributes"]["loom.worker"] == "played"
    assert spans["lane.wait"]["end_time"] == spans["turn.run"]["start_time"]


def test_a_turn_that_waits_for_a_person_has_no_run_under_way(
    client: FlaskClient, submit: Submit, worker: PlayedWorker
) -> None:
    turn_id = submit()["id"]
    worker.ask_person(turn_id, Call("toolu_1", "pay", {"amount": 1}, 0, 1, approval="waiting"))
    runs = [span for span in spans_of(client, turn_id) if span["name"] == "turn.run"]
    assert [(run["attributes"]["loom.run.end"], run["end_time"] is None) for run in runs] == [("parked", False)]


def test_every_span_of_an_ended_turn_has_an_end_and_what_the_document_says(client: FlaskClient, ended: str) -> None:
    spans = spans_of(client, ended)
    assert {span["name"] for span in spans} == {"http.request", "agent.chat", "lane.wait", "turn.run", "store.finish"}
    for span in spans:
        began, end = (datetime.fromisoformat(span[name]) for name in ("start_time", "end_time"))
        assert (end - began).total_seconds() * 1000 == pytest.approx(span["duration_ms"], abs=1e-6)
        assert span["span_id"] != span["parent_id"]
    schema = client.get("/openapi.json").get_json()["components"]["schemas"]["TraceSpan"]
    assert all(set(span) == set(schema["properties"]) for span in spans)


def test_the_trace_is_that_of_the_turn_and_of_its_answers_header(client: FlaskClient) -> None:
    answer = client.post("/v1/sessions/s/turns", json={"input": "x"})
    turn = answer.get_json()
    _, trace_id, span_id, _ = answer.headers["traceparent"].split("-")
    root, *rest = spans_of(client, turn["id"])
    assert (root["name"], root["trace_id"], root["span_id"], root["parent_id"]) == (
        *("http.request", turn["trace_id"], span_id, None),
    )
    assert {span["trace_id"] for span in rest} == {turn["trace_id"], trace_id}


def test_the_request_of_a_client_with_a_trace_hangs_on_the_clients_span(client: FlaskClient) -> None:
    headers = {"traceparent": f"00-{TRACE}-{CLIENT_SPAN}-01"}
    turn = client.post("/v1/sessions/s/turns", json={"input": "x"}, headers=headers).get_json()
    root, chat, *_ = spans_of(client, turn["id"])
    assert (root["trace_id"], root["parent_id"], chat["parent_id"]) == (TRACE, CLIENT_SPAN, root["span_id"])
    assert CLIENT_SPAN not in (root["span_id"], chat["span_id"])


def test_an_invalid_trace_of_a_client_is_no_parent(client: FlaskClient) -> None:
    headers = {"traceparent": f"00-{TRACE}-{CLIENT_SPAN}-01-more"}
    turn = client.post("/v1/sessions/s/turns", json={"input": "x"}, headers=headers).get_json()
    root, *_ = spans_of(client, turn["id"])
    assert (root["parent_id"], root["trace_id"] == TRACE) == (None, False)


def test_a_turn_tried_anew_has_a_trace_of_its_own_request(
    client: FlaskClient, submit: Submit, worker: PlayedWorker
) -> None:
    failed = worker.die(submit()["id"])
    again = client.post(f"/v1/turns/{failed.id}/retry").get_json()
    root, *_ = spans_of(client, again["id"])
    assert root["attributes"]["http.route"] == "/v1/turns/{turn_id}/retry"
    assert root["trace_id"] == again["trace_id"] != failed.trace_id


def test_a_trace_comes_in_pages(client: FlaskClient, ended: str) -> None:
    whole, found, after = spans_of(client, ended), [], ""
    while True:
        page = client.get(f"/v1/turns/{ended}/trace?limit=2{after}").get_json()
        assert 1 <= len(page["data"]) <= 2
        found += page["data"]
        if not page["has_more"]:
            break
        after = f"&after={page['next']}"
    assert found == whole


@pytest.mark.parametrize("scope", ["chat", "read"])
def test_a_key_that_may_read_may_see_traces(stage: WebStage, client: FlaskClient, scope: str) -> None:
    turn_id = client.post("/v1/sessions/s/turns", json={"input": "x"}).get_json()["id"]
    holder = KeyHolder("default", ALL_SCOPES)
    secret = stage.service.keys.create(holder, NewKey("a key", (scope,)))[1]  # type: ignore[arg-type]  # a scope
    answer = client.get(f"/v1/turns/{turn_id}/trace", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 200
    assert client.get(f"/v1/turns/{turn_id}/trace").status_code == 401


def test_nothing_that_was_said_is_in_a_trace(client: FlaskClient, submit: Submit, worker: PlayedWorker) -> None:
    turn_id = str(submit(input="a secret question")["id"])
    worker.finish(turn_id, "a secret answer")
    assert "secret" not in client.get(f"/v1/turns/{turn_id}/trace").text
