import re

import pytest
from flask.testing import FlaskClient
from sqlalchemy import select
from werkzeug.datastructures import Headers

from loom_worker.store.schema import turns
from tests.support.web_stage import WebStage
from web.caller import request_id_of, traceparent_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize("given", [PARENT, PARENT[:-2] + "00", f"01-{TRACE}-00f067aa0ba902b7-01-more"])
def test_a_valid_trace_is_kept(given: str) -> None:
    assert traceparent_of(Headers({"traceparent": given})) == given


@pytest.mark.cases(
    "given",
    [
        "",
        "garbage",
        PARENT.upper(),
        PARENT + "-more",
        PARENT + " ",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-00f067aa0ba902b7-01",
        f"01-{TRACE}-00f067aa0ba902b7-01-" + "m" * 300,
    ],
)
def test_an_invalid_trace_is_replaced_by_a_new_one(given: str) -> None:
    made = traceparent_of(Headers({"traceparent": given}))
    assert made != given
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", made)


@pytest.mark.parametrize("given", ["abc", "a b ~", "r" * 128])
def test_a_sane_request_id_is_kept(given: str) -> None:
    assert request_id_of(Headers({"X-Request-Id": given})) == given


@pytest.mark.cases("given", ["", "r" * 129, "é", "a\tb"])
def test_another_request_id_is_replaced(given: str) -> None:
    assert request_id_of(Headers({"X-Request-Id": given})).startswith("req_")


def test_two_requests_get_two_ids(client: FlaskClient) -> None:
    ids = {client.get("/v1/tools").headers["X-Request-Id"] for _ in range(2)}
    assert len(ids) == 2


def test_the_turn_carries_the_request_id_and_trace_of_its_request(client: FlaskClient, stage: WebStage) -> None:
    headers = {"X-Request-Id": "mine", "traceparent": PARENT}
    answer = client.post("/v1/sessions/s/turns", json={"input": "x"}, headers=headers)
    assert answer.get_json()["trace_id"] == TRACE
    assert (answer.headers["X-Request-Id"], answer.headers["traceparent"]) == ("mine", PARENT)
    with stage.database.read() as tx:
        assert tx.execute(select(turns.c.request_id, turns.c.traceparent)).one() == ("mine", PARENT)
