import time
from functools import partial

import pytest
from flask.testing import FlaskClient
from sqlalchemy import select

from loom_worker.store.schema import turns
from tests.support.played_worker import PlayedWorker
from tests.support.until import AT_ONCE_S
from tests.support.web_stage import Live, Submit, WebStage, answered, set_lane_depth
from web.connection_limits import ConnectionLimiter


def test_an_accepted_turn_tells_where_to_look(client: FlaskClient) -> None:
    answer = client.post("/v1/sessions/s/turns", json={"input": "hello"})
    turn = answer.get_json()
    assert answer.status_code == 202
    assert answer.headers["Location"] == f"/v1/turns/{turn['id']}"
    assert answer.headers["Retry-After"] == "1"
    assert answer.headers["Cache-Control"] == "no-store"
    assert (turn["object"], turn["status"], turn["session_id"], turn["seq"]) == ("turn", "queued", "s", 1)
    assert client.get(answer.headers["Location"]).get_json()["id"] == turn["id"]
    assert client.get("/v1/sessions/s").get_json()["queue_depth"] == 1


def test_what_was_validated_is_stored(client: FlaskClient, stage: WebStage) -> None:
    body = {
        "deadline_s": 2.5,
        "max_attempts": 3.0,
        "budget": {"usd": 1},
        "metadata": {"k": "v"},
        "double_texting": "reject",
    }
    webhook = {"url": "https://hooks.example/x", "secret": "whsec_" + "YWJj" * 8}
    client.post("/v1/sessions/s/turns", json={"input": " hi ", **body, "webhook": webhook})
    with stage.database.read() as tx:
        row = tx.execute(select(turns)).one()
    assert (row.input, row.deadline_ms - row.created_ms, row.max_attempts) == (" hi ", 2500, 3)
    assert (row.budget, row.metadata) == ({"usd": 1}, {"k": "v"})
    assert (row.webhook_url, row.webhook_secret) == ("https://hooks.example/x", webhook["secret"])
    assert (row.idempotency_key, row.fingerprint) == (None, None)
    # double_texting is in no row: the session is busy now.
    assert client.post("/v1/sessions/s/turns", json={"input": "x", **body}).status_code == 409


@pytest.mark.parametrize(
    ("said_at", "kept"),
    [
        ("2023-05-07T13:56:00Z", "2023-05-07T13:56:00.000Z"),
        ("2023-05-07T13:56:00.5+02:00", "2023-05-07T11:56:00.500Z"),
        (None, None),
    ],
)
def test_a_turn_keeps_when_it_was_said(client: FlaskClient, said_at: str | None, kept: str | None) -> None:
    turn = client.post("/v1/sessions/s/turns", json={"input": "hi", "said_at": said_at}).get_json()
    assert turn["said_at"] == kept
    assert turn["created_at"] > "2026"


@pytest.mark.parametrize(
    "said_at",
    [
        "",
        "2023-05-07",
        "2023-05-07T13:56:00",
        "2023-02-30T10:00:00Z",
        "2999-01-01T00:00:00Z",
        7,
        "1969-01-01T00:00:00Z",
    ],
)
def test_a_time_without_a_zone_or_in_the_future_is_no_said_at(client: FlaskClient, said_at: object) -> None:
    answer = client.post("/v1/sessions/s/turns", json={"input": "hi", "said_at": said_at})
    assert answer.status_code == 422
    assert [flaw["pointer"] for flaw in answer.get_json()["errors"]] == ["/said_at"]


@pytest.mark.parametrize("session_id", ["a b", "é", "%00", "a" * 129, "a%0A"])
def test_a_turn_cannot_make_a_session_with_an_unusable_id(
    client: FlaskClient, stage: WebStage, session_id: str
) -> None:
    answer = client.post(f"/v1/sessions/{session_id}/turns", json={"input": "", "x": 1})
    pointers = [flaw["pointer"] for flaw in answer.get_json()["errors"]]
    assert (answer.status_code, sorted(pointers)) == (422, ["/input", "/session_id", "/x"])
    assert stage.count() == 0


@pytest.mark.parametrize("webhook", ["http://127.0.0.1:9/x", "ftp://example.org", {"url": "http://10.0.0.1/"}])
def test_a_refused_webhook_has_a_type_of_its_own(client: FlaskClient, webhook: object) -> None:
    answer = client.post("/v1/sessions/s/turns", json={"input": "x", "webhook": webhook})
    assert (answer.status_code, answer.get_json()["type"]) == (422, "/problems/webhook-url-refused")
    assert answer.get_json()["errors"][0]["pointer"] == "/webhook/url"
    assert client.get("/v1/turns").get_json()["data"] == []


def test_the_same_key_and_body_give_the_same_turn(client: FlaskClient, submit: Submit) -> None:
    answers = [
        client.post("/v1/sessions/s/turns", data=raw, headers={"Idempotency-Key": key}, content_type="application/json")
        for key, raw in [("k1", '{"input":"x","metadata":{}}'), ('"k1"', '{ "metadata": {}, "input": "x" }')]
    ]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].get_json()["id"] == answers[1].get_json()["id"]
    assert ["Idempotency-Replayed" in answer.headers for answer in answers] == [False, True]
    assert answers[1].headers["Idempotency-Replayed"] == "true"
    assert answers[1].headers["Location"] == answers[0].headers["Location"]


def test_the_same_key_with_another_body_is_refused(client: FlaskClient) -> None:
    post = [
        client.post(f"/v1/sessions/{session}/turns", json={"input": text}, headers={"Idempotency-Key": "k"})
        for session, text in [("s", "x"), ("s", "y"), ("t", "x")]
    ]
    assert [answer.status_code for answer in post] == [202, 422, 422]
    assert post[1].get_json()["type"] == "/problems/idempotency-mismatch"


def test_a_bad_key_stores_nothing(client: FlaskClient, stage: WebStage) -> None:
    answer = client.post("/v1/sessions/s/turns", json={"input": "x"}, headers={"Idempotency-Key": "k" * 300})
    assert (answer.status_code, stage.count()) == (400, 0)


def test_reject_is_a_conflict_while_the_session_is_busy(
    client: FlaskClient, submit: Submit, worker: PlayedWorker
) -> None:
    first = submit("s")
    again = {"input": "y", "double_texting": "reject"}
    answer = client.post("/v1/sessions/s/turns", json=again)
    assert (answer.status_code, answer.get_json()["type"]) == (409, "/problems/lane-busy")
    worker.finish(first["id"])
    assert client.post("/v1/sessions/s/turns", json=again).status_code == 202


def test_a_full_lane_is_429_and_says_when_to_come_back(client: FlaskClient, submit: Submit, stage: WebStage) -> None:
    set_lane_depth(stage.service, 3)
    for _ in range(3):
        submit("s")
    answer = client.post("/v1/sessions/s/turns", json={"input": "one more"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")


def test_prefer_wait_answers_202_when_the_time_is_over(client: FlaskClient) -> None:
    answer = client.post("/v1/sessions/s/turns", json={"input": "x"}, headers={"Prefer": "wait=0"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (202, "1")


def test_a_replay_of_an_ended_turn_is_200_for_who_waits(client: FlaskClient, worker: PlayedWorker) -> None:
    headers = {"Idempotency-Key": "k", "Prefer": "wait=5"}
    first = client.post("/v1/sessions/s/turns", json={"input": "x"}, headers={"Idempotency-Key": "k"}).get_json()
    worker.finish(first["id"])
    again = client.post("/v1/sessions/s/turns", json={"input": "x"}, headers=headers)
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (200, "true")


def test_a_long_poll_on_an_ended_turn_does_not_wait(client: FlaskClient, submit: Submit, worker: PlayedWorker) -> None:
    turn = submit()
    worker.finish(turn["id"])
    began = time.monotonic()
    assert client.get(f"/v1/turns/{turn['id']}?wait=60").get_json()["status"] == "completed"
    assert time.monotonic() - began < AT_ONCE_S


def test_who_finds_no_slot_is_answered_at_once(client: FlaskClient, submit: Submit, limiter: ConnectionLimiter) -> None:
    turn = submit()
    while limiter.enter():
        pass
    began = time.monotonic()
    assert client.get(f"/v1/turns/{turn['id']}?wait=60").get_json()["status"] == "queued"
    answer = client.post("/v1/sessions/s/turns", json={"input": "x"}, headers={"Prefer": "wait=60"})
    assert (answer.status_code, "Preference-Applied" in answer.headers) == (202, False)
    assert time.monotonic() - began < AT_ONCE_S


def test_lists_are_filtered_by_status_reason_and_session(
    client: FlaskClient, submit: Submit, worker: PlayedWorker
) -> None:
    first, second = submit("s"), submit("t")
    worker.finish(first["id"])
    listed = lambda path: [turn["id"] for turn in client.get(path).get_json()["data"]]  # noqa: E731
    assert set(listed("/v1/turns")) == {first["id"], second["id"]}
    assert listed("/v1/turns?status=completed") == [first["id"]]
    assert listed("/v1/turns?status=failed&reason=dead") == []
    assert listed("/v1/sessions/t/turns") == [second["id"]]
    assert listed("/v1/sessions/t/turns?status=completed") == []


def test_a_repeat_gets_the_turn_at_once_while_the_first_request_still_waits(live: Live, stage: WebStage) -> None:
    ask = partial(live.asked, "POST", "/v1/sessions/s/turns", {"input": "x"}, Idempotency_Key="k")
    first = ask(Prefer="wait=30")
    assert stage.waiter.await_waiters(1)
    status, turn, headers = answered(ask())
    assert (status, headers["Idempotency-Replayed"]) == (202, "true")
    stage.worker.finish(turn["id"])
    status, ended, _ = answered(first)
    assert (status, ended["id"]) == (200, turn["id"])


@pytest.mark.parametrize("unseen", ["", " ", "\u00a0\u2003\u200b", "\u200b", "\u200d\ufe0f", "\u3164", "\u200b" * 3000])
def test_a_question_in_which_nothing_can_be_seen_is_blank(client: FlaskClient, unseen: str) -> None:
    answer = client.post("/v1/sessions/s/turns", json={"input": unseen})
    flaw = {"pointer": "/input", "detail": "must not be blank"}
    assert (answer.status_code, answer.get_json()["errors"]) == (422, [flaw])


@pytest.mark.parametrize("seen", ["\u200bx", "👍", "\u200b" * 3000 + "x", "表", "0"])
def test_a_question_in_which_anything_can_be_seen_is_accepted(submit: Submit, seen: str) -> None:
    assert submit(input=seen)["input"] == seen
