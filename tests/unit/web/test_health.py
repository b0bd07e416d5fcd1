from flask.testing import FlaskClient

from tests.support.memory_service import MemoryService
from web.connection_limits import ConnectionLimiter


def test_a_whole_system_is_ready(client: FlaskClient) -> None:
    assert client.get("/readyz").get_json() == {"status": "ready"}


def test_readiness_tells_what_is_missing(client: FlaskClient, memory: MemoryService) -> None:
    memory.missing = ("redis does not answer", "no live worker")
    answer = client.get("/readyz")
    assert (answer.status_code, answer.mimetype) == (503, "application/problem+json")
    assert answer.get_json()["reasons"] == ["redis does not answer", "no live worker"]


def test_while_draining_the_process_is_alive_but_not_ready(client: FlaskClient, limiter: ConnectionLimiter) -> None:
    limiter.begin_drain()
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").get_json()["reasons"] == ["draining"]


def test_liveness_asks_nothing_of_the_database(client: FlaskClient, memory: MemoryService) -> None:
    memory.is_down = True
    assert client.get("/healthz").get_json() == {"status": "ok"}
