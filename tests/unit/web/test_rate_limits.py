"""Rate limits of keys over HTTP: what is counted, what is refused, and what the headers say."""

from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import insert, update
from werkzeug.test import TestResponse

from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder, KeyLimits, NewKey
from loom_worker.core.values.ids import now_ms
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.schema import turns, usage
from tests.support.web_stage import MakeStage, WebStage
from web.app import create_app

ASKED = {"input": "What is in stock?"}


def key(stage: WebStage, **limits: int) -> dict[str, str]:
    new = NewKey("a key", ("admin",), limits=KeyLimits(**limits))
    return {"Authorization": f"Bearer {stage.service.keys.create(KeyHolder('default', ALL_SCOPES), new)[1]}"}


def submit(client: FlaskClient, headers: dict[str, str], session_id: str = "s") -> TestResponse:
    return client.post(f"/v1/sessions/{session_id}/turns", json=ASKED, headers=headers)


def book(stage: WebStage, tokens: int, *, key_id: str, ago_s: float = 0.0) -> None:
    """Enter what a turn of the key has used."""
    row: dict[str, Any] = dict.fromkeys(("input_tokens", "cache_read_tokens", "cache_write_tokens", "llm_calls"), 0)
    names = {"workspace": "default", "session_id": "s", "turn_id": "t", "agent": "a", "model": "m", "key_id": key_id}
    with stage.database.write(lock=WHOLE) as tx:
        tx.execute(insert(usage), {**row, **names, "output_tokens": tokens, "at_ms": now_ms() - int(ago_s * 1000)})


def key_id_of(client: FlaskClient, headers: dict[str, str]) -> str:
    listed = client.get("/v1/keys", headers=headers).get_json()["data"]
    return str(listed[0]["id"])


def test_the_request_after_the_last_one_allowed_is_refused_and_told_when(client: FlaskClient, stage: WebStage) -> None:
    headers = key(stage, requests_per_minute=2)
    answers = [client.get("/v1/sessions", headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers["RateLimit"].split(";t=")[0] for answer in answers] == [
        '"requests";r=1',
        '"requests";r=0',
        '"requests";r=0',
    ]
    refused = answers[2]
    assert refused.get_json()["type"] == "/problems/rate-limited"
    assert refused.headers["RateLimit-Policy"] == '"requests";q=2;w=60'
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert refused.headers["RateLimit"].endswith(f";t={refused.headers['Retry-After']}")


def test_what_a_key_has_used_is_not_taken_off_another_one(client: FlaskClient, stage: WebStage) -> None:
    one, other = key(stage, requests_per_minute=1), key(stage, requests_per_minute=1)
    assert [client.get("/v1/sessions", headers=headers).status_code for headers in (one, other, one)] == [200, 200, 429]


def test_an_unlimited_key_gets_no_such_headers(client: FlaskClient, stage: WebStage) -> None:
    answer = client.get("/v1/sessions", headers=key(stage))
    assert not [name for name, _ in answer.headers if name.startswith("RateLimit")]


def test_the_settings_limit_keys_without_a_limit_of_their_own_and_those_of_the_settings(make_stage: MakeStage) -> None:
    stage = make_stage(api_keys={"k1": "default"}, key_requests_per_minute=1)
    client = create_app(stage.service).test_client()
    own = key(stage, requests_per_minute=5)
    of_settings = {"Authorization": "Bearer k1"}
    for headers, policy in ((own, '"requests";q=5;w=60'), (of_settings, '"requests";q=1;w=60'), (key(stage), None)):
        answer = client.get("/v1/sessions", headers=headers)
        assert answer.status_code == 200
        assert answer.headers["RateLimit-Policy"] == (policy or '"requests";q=1;w=60')
    assert client.get("/v1/sessions", headers=of_settings).status_code == 429


def test_this_machine_has_no_limits_while_it_needs_no_key(make_stage: MakeStage) -> None:
    client = create_app(make_stage(key_requests_per_minute=1, key_tokens_per_minute=1).service).test_client()
    assert [submit(client, {}, f"s{n}").status_code for n in range(3)] == [202, 202, 202]


def test_turns_are_refused_once_the_tokens_of_a_minute_are_used(client: FlaskClient, stage: WebStage) -> None:
    headers = key(stage, tokens_per_minute=100)
    key_id = key_id_of(client, headers)
    accepted = submit(client, headers)
    assert accepted.status_code == 202
    assert accepted.headers["RateLimit"] == '"tokens";r=100;t=0'
    book(stage, 40, key_id=key_id, ago_s=30)
    book(stage, 500, key_id=key_id, ago_s=61)
    book(stage, 500, key_id="key_other")
    assert submit(client, headers).headers["RateLimit"].startswith('"tokens";r=60;')
    book(stage, 60, key_id=key_id)
    refused = submit(client, headers)
    assert refused.status_code == 429
    assert refused.get_json()["type"] == "/problems/rate-limited"
    assert 20 <= int(refused.headers["Retry-After"]) <= 30
    assert client.get("/v1/sessions", headers=headers).status_code == 200


def test_tokens_of_turns_that_run_count_too(client: FlaskClient, stage: WebStage) -> None:
    headers = key(stage, tokens_per_minute=100)
    turn_id = submit(client, headers).get_json()["id"]
    used = {"input_tokens": 90, "output_tokens": 10}
    with stage.database.write(lock=WHOLE) as tx:
        tx.execute(update(turns).where(turns.c.id == turn_id).values(usage=used, status="in_progress"))
    assert submit(client, headers).headers["Retry-After"] == "60"


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute"])
def test_a_limit_is_set_with_the_key_and_kept_when_it_is_replaced(
    client: FlaskClient, stage: WebStage, name: str
) -> None:
    headers = key(stage)
    made = client.post("/v1/keys", json={"name": "CI", name: 7}, headers=headers).get_json()
    assert made[name] == 7
    rotated = client.post(f"/v1/keys/{made['id']}/rotate", headers=headers).get_json()
    assert rotated[name] == 7
    assert client.post("/v1/keys", json={"name": "CI", name: 0}, headers=headers).status_code == 422
