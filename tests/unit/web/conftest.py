"""The front end over each front there is; see tests.support.web_stage."""

from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.support.memory_front import MemoryFront
from tests.support.web_stage import FRONTS, Live, Stage, Submit, Worker
from web.app import create_app, doors_of
from web.doors import Doors
from web.serve import Server


@pytest.fixture(params=sorted(FRONTS))
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with FRONTS[request.param]() as made:
        yield made


@pytest.fixture
def front(stage: Stage) -> Any:
    return stage.front


@pytest.fixture
def worker(stage: Stage) -> Worker:
    return stage.worker


@pytest.fixture
def memory(front: Any) -> MemoryFront:
    """For tests that look behind the seam, or break it."""
    if not isinstance(front, MemoryFront):
        pytest.skip("only the memory front can be looked into")
    return front


@pytest.fixture
def app(front: Any) -> Flask:
    return create_app(front)


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


@pytest.fixture
def doors(app: Flask) -> Doors:
    return doors_of(app)


@pytest.fixture
def live(front: Any) -> Iterator[Live]:
    server = Server(front)
    server.start()
    yield Live(server)
    server.drain(grace_s=2)
    server.stop()


@pytest.fixture
def submit(client: FlaskClient) -> Submit:
    """Submit a turn that must be accepted, and return it."""

    def post(session: str = "s1", **body: Any) -> dict[str, Any]:
        answer = client.post(f"/v1/sessions/{session}/turns", json={"input": "hello", **body})
        assert answer.status_code == 202, answer.text
        return dict(answer.get_json())

    return post
