"""The front end over each service there is; see tests.support.web_stage."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.routing import Rule

from tests.support.memory_service import MemoryService
from tests.support.web_stage import SERVICES, Live, Stage, Submit, Worker
from web.app import create_app, limiter_of
from web.connection_limits import ConnectionLimiter
from web.serve import Server


class KnownRule(Rule):
    """Builds URLs with what was compiled for the same path of an earlier application.

    Compiling it anew takes half of the time in which an application is made, and Loom's builds no URLs.
    """

    _compiled: ClassVar[dict[tuple[str, bool], Any]] = {}

    def _compile_builder(self, append_unknown: bool = True) -> Any:
        key = (self.rule, append_unknown)
        if key not in self._compiled:
            self._compiled[key] = super()._compile_builder(append_unknown)
        return self._compiled[key]


@pytest.fixture(scope="session", autouse=True)
def _known_rules() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Flask, "url_rule_class", KnownRule)
        yield


@pytest.fixture(params=sorted(SERVICES))
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with SERVICES[request.param]() as made:
        yield made


@pytest.fixture
def service(stage: Stage) -> Any:
    return stage.service


@pytest.fixture
def worker(stage: Stage) -> Worker:
    return stage.worker


@pytest.fixture
def memory(service: Any) -> MemoryService:
    """For tests that look behind the seam, or break it."""
    if not isinstance(service, MemoryService):
        pytest.skip("only the service in memory can be looked into")
    return service


@pytest.fixture
def app(service: Any) -> Flask:
    return create_app(service)


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


@pytest.fixture
def limiter(app: Flask) -> ConnectionLimiter:
    return limiter_of(app)


@pytest.fixture
def live(service: Any) -> Iterator[Live]:
    server = Server(service)
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
