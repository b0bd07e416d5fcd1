import re

from flask.testing import FlaskClient

from loom_worker.guard.limits import Breakers
from tests.support.web_stage import WebStage
from web.connection_limits import ConnectionLimiter


def test_a_whole_system_is_ready(client: FlaskClient, stage: WebStage) -> None:
    stage.bring_worker()
    assert client.get("/readyz").get_json() == {"status": "ready"}


def test_readiness_tells_what_is_missing(client: FlaskClient, stage: WebStage) -> None:
    stage.database.is_down = True
    answer = client.get("/readyz")
    assert (answer.status_code, answer.mimetype) == (503, "application/problem+json")
    assert answer.get_json()["reasons"] == [
        "database: the database does not answer",
        "workers: none that takes turns is alive",
    ]


def test_this_machine_alone_is_told_of_models_that_do_not_answer(client: FlaskClient, stage: WebStage) -> None:
    stage.bring_worker()
    breakers = Breakers(stage.redis)
    for why in ("cut", "connection refused"):
        breakers.tell_answer("m (anthropic)", why)
    [warning] = client.get("/readyz").get_json()["warnings"]
    assert re.fullmatch(r"m \(anthropic\) has not answered since 2\S+Z: connection refused", warning)
    for name in ("X-Forwarded-For", "X-Real-IP"):
        assert client.get("/readyz", headers={name: "127.0.0.1"}).get_json() == {"status": "ready"}
    breakers.tell_answer("m (anthropic)")
    assert client.get("/readyz").get_json() == {"status": "ready"}


def test_while_draining_the_process_is_alive_but_not_ready(client: FlaskClient, limiter: ConnectionLimiter) -> None:
    limiter.begin_drain()
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").get_json()["reasons"] == ["draining"]


def test_liveness_asks_nothing_of_the_database(client: FlaskClient, stage: WebStage) -> None:
    stage.database.is_down = True
    assert client.get("/healthz").get_json() == {"status": "ok"}
