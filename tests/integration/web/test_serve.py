import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import redis

from loom_worker.core.settings import Settings
from loom_worker.core.values.api_keys import ApiKey
from loom_worker.core.values.sessions import NewSession, Session
from loom_worker.store.api_keys import KeyRows
from loom_worker.store.database import Database
from tests.support.until import AT_ONCE_S, until
from tests.support.valkey import Valkey
from tests.support.web_stage import MakeStage, WebStage, stages
from web.serve import HttpServer, serve

pytestmark = pytest.mark.takes(5)

Process = tuple[subprocess.Popen[str], int]


class SlowSessions:
    """Takes its time over a session of the stage: until it is let go."""

    def __init__(self, stage: WebStage) -> None:
        self.entered, self.let_go = threading.Event(), threading.Event()
        self._real = stage.service.sessions
        stage.service.sessions = self  # type: ignore[assignment]

    def get(self, workspace: str, session_id: str) -> Session:
        self.entered.set()
        assert self.let_go.wait(60)
        return self._real.get(workspace, session_id)


@pytest.fixture
def make_stage(settings: Settings, valkey: redis.Redis) -> Iterator[MakeStage]:
    with stages(settings, valkey) as make:
        yield make


@pytest.fixture
def stage(make_stage: MakeStage) -> WebStage:
    return make_stage()


def call(port: int, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_a_running_request_ends_before_the_server_does(stage: WebStage) -> None:
    stage.service.create_session("default", NewSession(id="s"))
    sessions = SlowSessions(stage)
    server = HttpServer(stage.service)
    server.start()
    answers: list[int] = []
    running = threading.Thread(target=lambda: answers.append(call(server.port, "GET", "/v1/sessions/s")[0]))
    running.start()
    assert sessions.entered.wait(AT_ONCE_S)
    draining = threading.Thread(target=server.drain)
    draining.start()
    front_is_draining = lambda: call(server.port, "GET", "/readyz")[0] == 503  # noqa: E731
    until(front_is_draining, 10, "the front drains")
    assert call(server.port, "POST", "/v1/sessions", {})[0] == 503
    assert call(server.port, "GET", "/healthz")[0] == 200
    assert draining.is_alive()
    sessions.let_go.set()
    draining.join(AT_ONCE_S)
    running.join(AT_ONCE_S)
    server.stop()
    assert answers == [200]
    with pytest.raises(OSError, match=r"refused|reset"):
        call(server.port, "GET", "/healthz")


@pytest.mark.heavy
def test_waiters_and_readers_are_sent_home_when_the_server_drains(stage: WebStage) -> None:
    server = HttpServer(stage.service)
    server.start()
    turn = json.loads(call(server.port, "POST", "/v1/sessions/s/turns", {"input": "x"})[1])
    answers: list[tuple[int, bytes]] = []
    paths = (f"/v1/turns/{turn['id']}?wait=60", f"/v1/turns/{turn['id']}/events")
    waiters = [
        threading.Thread(target=lambda path=path: answers.append(call(server.port, "GET", path))) for path in paths
    ]
    for waiter in waiters:
        waiter.start()
    assert stage.waiter.await_waiters(2)
    began = time.monotonic()
    server.drain()
    for waiter in waiters:
        waiter.join(AT_ONCE_S)
    assert time.monotonic() - began < AT_ONCE_S
    server.stop()
    assert sorted(status for status, _ in answers) == [200, 200]


@pytest.mark.heavy
def test_a_request_that_never_ends_does_not_hold_the_drain_for_ever(
    stage: WebStage, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = SlowSessions(stage)
    server = HttpServer(stage.service)
    server.start()
    stuck = socket.create_connection(("127.0.0.1", server.port))
    stuck.sendall(b"GET /v1/sessions/s HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert sessions.entered.wait(AT_ONCE_S)
    began = time.monotonic()
    server.drain(grace_s=0.2)
    server.stop()
    assert time.monotonic() - began < AT_ONCE_S
    sessions.let_go.set()
    until(lambda: not any(each.name == "loom-request" for each in threading.enumerate()), AT_ONCE_S, "it has ended")
    assert "failed" not in caplog.text, "its answer goes nowhere"
    stuck.close()


def test_a_taken_port_is_one_clear_line_and_exit_1(make_stage: MakeStage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        stage = make_stage(port=port)
        with pytest.raises(SystemExit) as caught:
            serve(stage.service)
    assert re.fullmatch(rf"loom web: cannot listen on 127\.0\.0\.1:{port}: [^\n]+", str(caught.value.code))
    assert stage.components.count == 1, "the service is closed"


PROGRAM = """
import logging, sys
from dataclasses import replace
from loom_worker.core.settings import from_env
from loom_worker.runtime.build import service
from web.serve import serve

logging.basicConfig(level=logging.INFO, stream=sys.stderr)
settings = from_env({"LOOM_HOME": sys.argv[1], "LOOM_REDIS_URL": sys.argv[2]})
serve(service(replace(settings, web=replace(settings.web, port=0))))
"""
"""As ``loom web`` does it, but on any port that is free."""


@pytest.fixture
def process(settings: Settings, valkey_server: Valkey) -> Iterator[Process]:
    """The front end as a process, and its port."""
    command = [sys.executable, "-c", PROGRAM, str(settings.home), valkey_server.url]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    with running, running.stderr:
        line = next(line for line in running.stderr if "listening" in line)
        yield running, int(line.rpartition(":")[2])
        running.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_the_process_exits_0(process: Process, number: signal.Signals) -> None:
    running, port = process
    turn = json.loads(call(port, "POST", "/v1/sessions/s/turns", {"input": "x"})[1])
    reader = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    reader.request("GET", f"/v1/turns/{turn['id']}/events")
    stream = reader.getresponse()
    assert any(line == b"event: turn.queued\n" for line in stream)
    began = time.monotonic()
    running.send_signal(number)
    running.send_signal(number)
    assert running.wait(AT_ONCE_S) == 0
    assert time.monotonic() - began < AT_ONCE_S
    assert b"event:" not in stream.read()
    reader.close()


@pytest.mark.heavy
def test_without_keys_the_start_says_who_is_served(process: Process) -> None:
    running, _ = process
    assert running.stderr is not None
    assert "only clients on this machine" in next(running.stderr)


@pytest.fixture
def stored_key(database: Database) -> None:
    KeyRows(database).add(ApiKey("key_1", "default", "CI", "loom_abc", ("chat",), 1), "1" * 64)


@pytest.mark.heavy
@pytest.mark.usefixtures("stored_key")
def test_with_a_key_in_the_database_the_start_says_that_clients_need_one(request: pytest.FixtureRequest) -> None:
    running: subprocess.Popen[str] = request.getfixturevalue("process")[0]
    assert running.stderr is not None
    assert "clients need a key that `loom keys create`" in next(running.stderr)


@pytest.mark.heavy
def test_a_key_that_waits_as_often_as_it_can_leaves_room_for_another_key(
    make_stage: MakeStage, request: pytest.FixtureRequest
) -> None:
    server = HttpServer(make_stage(api_keys={"key-a": "alpha", "key-b": "beta"}).service)
    server.start()
    request.addfinalizer(server.stop)
    request.addfinalizer(server.drain)

    def opened(key: str) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10, source_address=(SOURCES[key], 0))
        request.addfinalizer(connection.close)
        connection.request("POST", "/v1/sessions/s/turns", '{"input": "x"}', headers)
        turn = json.loads(connection.getresponse().read())
        connection.request("GET", f"/v1/turns/{turn['id']}/events", headers=headers)
        return connection.getresponse()

    streams = [opened("key-a") for _ in range(8)]
    streams.append(opened("key-b"))
    assert [stream.status for stream in streams] == [200] * 4 + [503] * 4 + [200]
    for stream in streams:
        stream.close()


SOURCES = {"key-a": "127.0.0.2", "key-b": "127.0.0.1"}
