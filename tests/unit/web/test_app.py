import json
import subprocess
import sys
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.support.web_stage import Submit, WebStage
from web.app import create_app
from web.connection_limits import ConnectionLimiter
from web.sessions import NewSessionBody
from web.turns import NewTurnBody

PATHS = ("/v1/sessions", "/v1/sessions/s1/turns")
PROBLEM = "application/problem+json"
MIB = 1024 * 1024

MALFORMED: list[bytes] = [
    b"",
    b"{",
    b'{"input":"x"',
    b"input=x",
    b'{"input":"\x00"}',
    b'{"input":"\\u0000"}',
    b'{"metadata":{"\\u0000":1},"input":"x"}',
    b'{"input":"\\ud800"}',
    b'{"metadata":{"a":["\\udc00"]},"input":"x"}',
    b'{"input":"\xff\xfe"}',
    b'{"input":"\xed\xa0\x80"}',
    b'{"deadline_s":NaN,"input":"x"}',
    b'{"deadline_s":-Infinity,"input":"x"}',
    b'{"deadline_s":1e400,"input":"x"}',
    b'{"max_attempts":' + b"9" * 10_000 + b',"input":"x"}',
    b'{"metadata":{"n":123456789012345678901234567890},"input":"x"}',
    b'{"input":"x","input":"y"}',
    b"[]",
    b'[{"input":"x"}]',
    b'"input"',
    b"null",
    b"true",
    b"1",
    b'{"metadata":' + b'{"a":' * 40 + b"1" + b"}" * 40 + b',"input":"x"}',
    b"[" * 500_000,
    b'{"a":' * 150_000,
    '{"input":"x"}'.encode("utf-16"),
    b'\xef\xbb\xbf{"input":"x"}',
]


@pytest.mark.cases("path", PATHS)
@pytest.mark.cases("raw", MALFORMED, ids=lambda raw: repr(raw[:24]))
def test_a_malformed_body_is_400_and_stores_nothing(
    client: FlaskClient, stage: WebStage, path: str, raw: bytes
) -> None:
    answer = client.post(path, data=raw, content_type="application/json")
    assert (answer.status_code, answer.mimetype) == (400, PROBLEM)
    assert stage.count() == 0


@pytest.mark.cases(
    "body",
    [
        {},
        {"input": None},
        {"input": " \n"},
        {"input": "x", "unknown": 1},
        {"input": "x", "max_attempts": "3"},
        {"input": "x", "max_attempts": True},
        {"input": "x", "deadline_s": -1},
        {"input": "x", "metadata": {"k": "v" * 17_000}},
        {"input": "x", "metadata": {"k": "é" * 8_200}},
        {"input": "x", "double_texting": "wait"},
    ],
    ids=lambda body: json.dumps(body)[:40],
)
def test_a_body_with_flaws_is_422_and_stores_nothing(
    client: FlaskClient, stage: WebStage, body: dict[str, Any]
) -> None:
    answer = client.post("/v1/sessions/s1/turns", json=body)
    assert (answer.status_code, answer.mimetype) == (422, PROBLEM)
    assert all(flaw["pointer"].startswith("/") and flaw["detail"] for flaw in answer.get_json()["errors"])
    assert stage.count() == 0


@pytest.mark.cases("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/xml", "json"])
@pytest.mark.cases(("method", "path"), [("POST", PATHS[0]), ("POST", PATHS[1]), ("PATCH", "/v1/sessions/s1")])
def test_what_is_not_declared_as_json_is_415(
    client: FlaskClient, stage: WebStage, content_type: str | None, method: str, path: str
) -> None:
    answer = client.open(path, method=method, data=b'{"input":"x"}', content_type=content_type)
    assert (answer.status_code, answer.mimetype, stage.count()) == (415, PROBLEM, 0)


def test_a_compressed_body_is_415(client: FlaskClient) -> None:
    assert client.post(PATHS[1], json={"input": "x"}, headers={"Content-Encoding": "gzip"}).status_code == 415


def test_the_charset_of_json_may_be_named(client: FlaskClient) -> None:
    raw, kind = '{"input":"é"}'.encode(), "Application/JSON; charset=utf-8"
    assert client.post(PATHS[1], data=raw, content_type=kind).get_json()["input"] == "é"


class Unreadable:
    """A request's body that fails whoever reads it."""

    def read(self, *_: int) -> bytes:
        raise AssertionError("the body was read")

    readline = read


@pytest.mark.cases(("path", "mib"), [(PATHS[0], 2), (PATHS[1], 29)])
def test_a_body_over_the_limit_is_413_before_it_is_read(client: FlaskClient, path: str, mib: int) -> None:
    environ = {"wsgi.input": Unreadable(), "CONTENT_LENGTH": str(mib * MIB)}
    answer = client.post(path, content_type="application/json", environ_overrides=environ)
    assert (answer.status_code, answer.mimetype) == (413, PROBLEM)


def test_a_body_of_exactly_the_limit_is_read(client: FlaskClient) -> None:
    raw = b'{"input":"a"' + b" " * (MIB - 13) + b"}"
    assert len(raw) == MIB
    assert client.post(PATHS[1], data=raw, content_type="application/json").status_code == 202
    assert client.post(PATHS[1], data=raw + b" ", content_type="application/json").status_code == 413


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["hello", "s1"])
NAMES = st.sampled_from([*NewTurnBody.model_fields, *NewSessionBody.model_fields])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["url", "usd", "tokens", "x"]), inner),
    max_leaves=8,
)


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(NAMES | st.text(max_size=5), VALUES, max_size=6), path=st.sampled_from(PATHS))
def test_no_body_is_the_servers_fault(client: FlaskClient, stage: WebStage, body: dict[str, Any], path: str) -> None:
    before = stage.count()
    answer = client.post(path, data=json.dumps(body).encode(), content_type="application/json")
    if answer.status_code in (201, 202):
        assert answer.get_json()["object"] in ("session", "turn")
    else:
        assert (400 <= answer.status_code < 500, answer.mimetype) == (True, PROBLEM)
        assert stage.count() == before


def test_while_draining_new_work_is_refused_and_the_rest_goes_on(
    client: FlaskClient, submit: Submit, limiter: ConnectionLimiter, stage: WebStage
) -> None:
    turn = submit()
    limiter.begin_drain()
    for path in PATHS:
        answer = client.post(path, json={"input": "x"})
        assert (answer.status_code, answer.get_json()["type"]) == (503, "/problems/draining")
        assert answer.headers["Retry-After"]
    assert client.get(f"/v1/turns/{turn['id']}?wait=60").get_json()["status"] == "queued"
    assert client.get(f"/v1/turns/{turn['id']}/events").status_code == 200
    assert stage.count() == 2, "the turn and its session, and nothing since"


@pytest.mark.parametrize("path", ["/v1/tools", "/v1/nowhere", "/healthz", "/"])
def test_every_answer_is_signed(client: FlaskClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["X-Request-Id"].startswith("req_")
    assert headers["traceparent"].startswith("00-")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


def test_importing_the_front_end_loads_no_model_and_no_classifier() -> None:
    heavy = "{'sklearn', 'anthropic', 'tiktoken', 'numpy', 'celery', 'sqlalchemy', 'redis'}"
    program = f"import sys, web.app, web.serve; sys.exit(', '.join({heavy} & sys.modules.keys()) or None)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_two_applications_share_nothing(stage: WebStage, other_stage: WebStage) -> None:
    first, second = (create_app(each.service).test_client() for each in (stage, other_stage))
    first.post("/v1/sessions", json={"id": "s"})
    assert second.get("/v1/sessions/s").status_code == 404
