"""The front end over the real service; see tests.support.web_stage."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from flask import Flask
from flask.testing import FlaskClient

from loom_worker.core.settings import Settings, from_env
from loom_worker.service.service import Service
from tests.support.played_worker import PlayedWorker
from tests.support.runs import workflow
from tests.support.web_stage import BreakableDatabase, Live, MakeStage, Submit, WebStage, stages
from tests.unit.web.described import DescribedClient
from tests.unit.web.flow import FORK, GATED, TWO, Flow
from web.app import create_app, limiter_of
from web.connection_limits import ConnectionLimiter
from web.serve import HttpServer


@pytest.fixture(scope="session")
def shared_database(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableDatabase]:
    file = tmp_path_factory.mktemp("web") / "loom.db"
    shutil.copy(empty_database, file)
    database = BreakableDatabase(f"sqlite:///{file}", sync="normal")
    yield database
    database.close()


@pytest.fixture
def database(shared_database: BreakableDatabase, empty_database: Path) -> BreakableDatabase:
    shared_database.begin_again(empty_database)
    return shared_database


@pytest.fixture
def make_stage(tmp_path: Path, database: BreakableDatabase, valkey: redis.Redis) -> Iterator[MakeStage]:
    with stages(from_env({"LOOM_HOME": str(tmp_path)}), valkey, database) as make:
        yield make


@pytest.fixture
def stage(make_stage: MakeStage) -> WebStage:
    return make_stage()


@pytest.fixture
def other_stage(settings: Settings, valkey: redis.Redis, empty_database: Path, tmp_path: Path) -> Iterator[WebStage]:
    """Another installation."""
    home = tmp_path / "other"
    home.mkdir()
    shutil.copy(empty_database, home / "loom.db")
    with stages(replace(settings, home=home, database_url=f"sqlite:///{home / 'loom.db'}"), valkey) as make:
        yield make()


@pytest.fixture
def service(stage: WebStage) -> Service:
    return stage.service


@pytest.fixture
def worker(stage: WebStage) -> PlayedWorker:
    return stage.worker


@pytest.fixture
def app(service: Service) -> Flask:
    return create_app(service)


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


@pytest.fixture
def limiter(app: Flask) -> ConnectionLimiter:
    return limiter_of(app)


@pytest.fixture
def live(service: Service) -> Iterator[Live]:
    server = HttpServer(service)
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


@pytest.fixture
def flow(app: Flask, stage: WebStage) -> Flow:
    """Some workflows, and a client each of whose answers must be as the OpenAPI document describes it."""
    app.test_client_class = DescribedClient
    stage.workflows.update(
        {name: workflow(spec, name) for name, spec in (("two", TWO), ("gated", GATED), ("fork", FORK))}
    )
    return Flow(app.test_client(), stage)


@pytest.fixture
def asking_run(flow: Flow) -> str:
    """A run that waits for a person."""
    run_id = str(flow.start("gated")["id"])
    flow.answer(run_id, "a draft")
    return run_id


@pytest.fixture
def ended_run(flow: Flow, asking_run: str) -> str:
    """A run of two stages, the first of which a person looked at."""
    assert flow.decide(asking_run, "approve").status_code == 200
    flow.answer(asking_run, "out")
    return asking_run
