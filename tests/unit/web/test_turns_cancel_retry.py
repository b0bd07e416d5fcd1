"""Turns that a client asks to end, and failed ones that it asks to run again."""

import http.client
import json
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.support.played_worker import PlayedWorker
from tests.support.web_stage import Live, Submit, WebStage, answered, set_lane_depth

ACTIONS: list[tuple[dict[str, Any], str]] = [
    ({}, "interrupt"),
    ({"data": b"", "content_type": "application/json"}, "interrupt"),
    ({"json": {}}, "interrupt"),
    ({"json": {"action": "interrupt"}}, "interrupt"),
    ({"json": {"action": "rollback"}}, "rollback"),
    ({"json": {"action": "finish"}}, "finish"),
]


@pytest.mark.parametrize(("body", "action"), ACTIONS)
def test_a_running_turn_is_told_how_to_end(
    client: FlaskClient, submit: Submit, worker: PlayedWorker, body: dict[str, Any], action: str
) -> None:
    turn = submit()
    worker.start(turn["id"])
    answer = client.post(f"/v1/turns/{turn['id']}/cancel", **body)
    told = answer.get_json()
    assert (answer.status_code, told["status"], told["cancel"]) == (202, "in_progress", action)
    assert (answer.headers["Location"], answer.headers["Retry-After"]) == (f"/v1/turns/{turn['id']}", "1")
    worker.heed(turn["id"])
    ended = client.get(f"/v1/turns/{turn['id']}?wait=5").get_json()
    assert ended["status"] == ("completed" if action == "finish" else "cancelled")


def test_a_turn_that_nobody_began_is_cancelled_at_once(client: FlaskClient, submit: Submit) -> None:
    turn = submit()
    answer = client.post(f"/v1/turns/{turn['id']}/cancel")
    assert (answer.status_code, answer.get_json()["status"]) == (202, "cancelled")
    assert "Retry-After" not in answer.headers
    assert "event: turn.cancelled" in client.get(f"/v1/turns/{turn['id']}/events").text


def test_cancelling_again_changes_nothing_and_a_turn_that_ended_stays_as_it_is(
    client: FlaskClient, submit: Submit, worker: PlayedWorker
) -> None:
    first, second = submit("s"), submit("t")
    answers = [client.post(f"/v1/turns/{first['id']}/cancel").get_json() for _ in range(2)]
    assert answers[0] == answers[1]
    worker.finish(second["id"], "42")
    late = client.post(f"/v1/turns/{second['id']}/cancel", json={"action": "rollback"})
    assert (late.status_code, late.get_json()["output_text"], late.get_json()["cancel"]) == (202, "42", None)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"json": {"action": "stop"}}, 422),
        ({"json": {"action": None}}, 422),
        ({"json": {"reason": "x"}}, 422),
        ({"json": ["rollback"]}, 400),
        ({"data": b"{", "content_type": "application/json"}, 400),
        ({"data": b"action=rollback", "content_type": "text/plain"}, 415),
    ],
)
def test_a_cancel_that_cannot_be_read_cancels_nothing(
    client: FlaskClient, submit: Submit, body: dict[str, Any], status: int
) -> None:
    turn = submit()
    answer = client.post(f"/v1/turns/{turn['id']}/cancel", **body)
    assert (answer.status_code, answer.mimetype) == (status, "application/problem+json")
    assert client.get(f"/v1/turns/{turn['id']}").get_json()["status"] == "queued"


def test_a_cancel_in_chunks_is_read_too(live: Live, submit: Submit, worker: PlayedWorker) -> None:
    turn = submit()
    worker.start(turn["id"])
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60)
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    chunks = iter((b'{"action": ', b'"rollback"}'))
    connection.request("POST", f"/v1/turns/{turn['id']}/cancel", chunks, headers, encode_chunked=True)
    assert json.loads(connection.getresponse().read())["cancel"] == "rollback"
    connection.close()


@pytest.mark.parametrize("action", ["interrupt", "rollback"])
def test_a_new_turn_may_cancel_the_one_that_runs_and_leaves_the_queued_ones(
    client: FlaskClient, submit: Submit, worker: PlayedWorker, action: str
) -> None:
    running, queued = submit("s"), submit("s")
    worker.start(running["id"])
    newest = submit("s", double_texting=action)
    look = lambda turn: client.get(f"/v1/turns/{turn['id']}").get_json()  # noqa: E731
    assert (look(running)["status"], look(running)["cancel"]) == ("in_progress", action)
    assert (look(queued)["status"], look(queued)["cancel"]) == ("queued", None)
    assert newest["position"] == 2


@pytest.fixture
def dead(submit: Submit, worker: PlayedWorker) -> dict[str, Any]:
    turn = submit("s", input="Why?")
    worker.die(turn["id"])
    return turn


def test_a_failed_turn_is_run_again_as_a_new_one_at_the_tail(
    client: FlaskClient, submit: Submit, dead: dict[str, Any]
) -> None:
    submit("s")
    answer = client.post(f"/v1/turns/{dead['id']}/retry")
    again = answer.get_json()
    assert (answer.status_code, again["retry_of"], again["input"]) == (202, dead["id"], "Why?")
    assert (again["session_id"], again["status"], again["position"]) == ("s", "queued", 1)
    assert (answer.headers["Location"], answer.headers["Retry-After"]) == (f"/v1/turns/{again['id']}", "1")
    assert client.get(f"/v1/turns/{dead['id']}").get_json()["reason"] == "dead"


def test_a_retry_waits_as_long_as_the_client_prefers(
    live: Live, client: FlaskClient, stage: WebStage, dead: dict[str, Any]
) -> None:
    asked = live.asked("POST", f"/v1/turns/{dead['id']}/retry", Prefer="wait=30")
    assert stage.waiter.await_waiters(1)
    stage.worker.finish(client.get("/v1/turns?status=queued").get_json()["data"][0]["id"], "42")
    status, turn, _ = answered(asked)
    assert (status, turn["output_text"]) == (200, "42")


def test_only_what_failed_is_run_again(client: FlaskClient, submit: Submit, worker: PlayedWorker) -> None:
    queued, completed, cancelled = submit("a"), submit("b"), submit("c")
    worker.finish(completed["id"])
    client.post(f"/v1/turns/{cancelled['id']}/cancel")
    for turn in (queued, completed, cancelled):
        answer = client.post(f"/v1/turns/{turn['id']}/retry")
        assert (answer.status_code, answer.get_json()["type"]) == (409, "/problems/not-retryable")


def test_an_archived_session_runs_nothing_again(client: FlaskClient, dead: dict[str, Any]) -> None:
    client.patch("/v1/sessions/s", json={"status": "archived"})
    answer = client.post(f"/v1/turns/{dead['id']}/retry")
    assert (answer.status_code, answer.get_json()["type"]) == (409, "/problems/session-archived")


def test_a_full_lane_takes_no_retry(client: FlaskClient, submit: Submit, stage: WebStage, dead: dict[str, Any]) -> None:
    set_lane_depth(stage.service, 3)
    for _ in range(3):
        submit("s")
    assert client.post(f"/v1/turns/{dead['id']}/retry").status_code == 429


def test_a_retry_says_nothing_but_its_path(client: FlaskClient, dead: dict[str, Any]) -> None:
    answer = client.post(f"/v1/turns/{dead['id']}/retry", json={"input": "Why not?"})
    assert (answer.status_code, answer.get_json()["errors"][0]["pointer"]) == (422, "/input")
    assert client.post(f"/v1/turns/{dead['id']}/retry", json={}).status_code == 202


def test_the_same_key_retries_once(client: FlaskClient, dead: dict[str, Any]) -> None:
    path = f"/v1/turns/{dead['id']}/retry"
    answers = [client.post(path, headers={"Idempotency-Key": key}) for key in ("k", '"k"')]
    assert answers[0].get_json()["id"] == answers[1].get_json()["id"]
    assert ["Idempotency-Replayed" in answer.headers for answer in answers] == [False, True]
    assert client.post(path, headers={"Idempotency-Key": "k2"}).get_json()["id"] != answers[0].get_json()["id"]


def test_a_key_belongs_to_one_path(
    client: FlaskClient, submit: Submit, worker: PlayedWorker, dead: dict[str, Any]
) -> None:
    other = submit("s")
    worker.die(other["id"])
    key = {"Idempotency-Key": "k"}
    assert client.post(f"/v1/turns/{dead['id']}/retry", headers=key).status_code == 202
    for answer in (
        client.post(f"/v1/turns/{other['id']}/retry", headers=key),
        client.post("/v1/sessions/s/turns", json={"input": "Why?"}, headers=key),
    ):
        assert (answer.status_code, answer.get_json()["type"]) == (422, "/problems/idempotency-mismatch")


@pytest.mark.parametrize("key", ["", "k" * 256, "a\tb"])
def test_a_retry_with_a_bad_key_is_malformed(client: FlaskClient, dead: dict[str, Any], key: str) -> None:
    answer = client.post(f"/v1/turns/{dead['id']}/retry", headers={"Idempotency-Key": key})
    assert answer.status_code == 400
    assert len(client.get("/v1/turns").get_json()["data"]) == 1
