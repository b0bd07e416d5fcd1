"""`loom worker`, `beat` and `flower` as processes on a real Valkey."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3
from flower.urls import handlers
from redis import Redis

from loom_worker.core.isolation import home_secrets
from loom_worker.core.settings import VALKEY_CONF, embedded_socket
from loom_worker.runtime.flower import READ_ONLY
from loom_worker.supervisor import home, valkey
from loom_worker.supervisor.ready import listens
from loom_worker.supervisor.specs import loom_command
from loom_worker.tasks.app import QUEUES
from tests.support.processes import killed_at_the_end
from tests.support.shipped_patterns import share_index
from tests.support.until import until
from tests.support.webhook_receiver import unused_port

pytestmark = [pytest.mark.integration, pytest.mark.takes(12)]
HOST = "127.0.0.1"
ASKING, CHANGING = ("GET",), ("POST", "PUT", "PATCH", "DELETE")
READABLE = {
    *("/", "/workers", "/tasks", "/broker", "/metrics", "/healthcheck", "/logout"),
    *("/api/workers", "/api/tasks", "/api/task/types", "/api/queues/length"),
}
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
Asking = Callable[..., urllib3.BaseHTTPResponse]


class Machine:
    """A home with a Valkey in it, on which single commands run in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.home, self.cwd = folder / "home", folder / "cwd"
        self.cwd.mkdir()
        home.prepare(self.home)
        share_index(self.home)
        self.env = {**os.environ, "LOOM_HOME": str(self.home), "LOOM_PROVIDER": "scripted"}
        socket_path = embedded_socket(self.home)
        valkey.make_room(socket_path, self.home / "valkey")
        url, config = home_secrets.embedded_with_password(self.home), self.home / VALKEY_CONF
        places = {"socket_path": socket_path, "data_dir": self.home / "valkey", "config": config}
        command = valkey.argv(valkey.find_binary(), **places)
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(lambda: valkey.is_open(socket_path), 10, "Valkey takes connections")
        self.redis = Redis.from_url(url, decode_responses=True, socket_timeout=5)

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[bytes]:
        with (self.home / "output").open("ab") as output:
            command, env = [*loom_command(), *arguments], {**self.env, **settings}
            return subprocess.Popen(command, env=env, cwd=self.cwd, stdout=output, stderr=output)

    def output(self) -> str:
        return (self.home / "output").read_text()

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        process.send_signal(signal.SIGTERM)
        return process.wait(timeout=60)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    with killed_at_the_end(machine.server.pid):
        subprocess.run([*loom_command(), "prepare"], env=machine.env, check=True)
        yield machine
        machine.redis.close()
    machine.server.wait()


@pytest.mark.heavy
def test_a_worker_takes_its_queues_and_ends_with_0_when_told_to(machine: Machine) -> None:
    worker = machine.start("worker", "--queues", "tool,webhook", "--name", "one", "--concurrency", "2")
    with killed_at_the_end(worker.pid):
        until(lambda: "ready" in machine.output(), 30, f"the worker is ready: {machine.output()}")
        bound = machine.redis.keys("loom:q:_kombu.binding.*")
        assert {name.rpartition(".")[2] for name in bound} >= {"tool", "webhook"}
        assert machine.stop(worker) == 0


@pytest.mark.heavy
def test_a_web_by_itself_is_found_by_the_commands_of_its_home_and_by_no_others(
    machine: Machine, tmp_path: Path
) -> None:
    port = str(unused_port())
    machine.env["LOOM_PORT"] = port
    web = machine.start("web")
    with killed_at_the_end(web.pid):
        until(lambda: listens(HOST, int(port)), 30, f"the web listens: {machine.output()}")
        found, other = (
            subprocess.run(
                [*loom_command(), "agents"],
                env={**machine.env, "LOOM_PORT": asked, "LOOM_HOME": str(directory)},
                capture_output=True,
                text=True,
                check=False,
            )
            for directory, asked in ((machine.home, "8000"), (tmp_path, port))
        )
        assert machine.stop(web) == 0
    assert (found.returncode, "default" in found.stdout) == (0, True)
    assert (other.returncode, other.stdout) == (1, "")
    assert f"Loom is not running on {tmp_path};" in other.stderr


@pytest.mark.heavy
def test_a_workers_log_begins_with_what_cannot_work(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "a.yaml").write_text("agent:\n  name: a\n  tools: [exec_sql]\n")
    (agents / "b.yaml").write_text("agent:\n  name: b\n  config: {max_turns: many}\n")
    monkeypatch.setitem(machine.env, "LOOM_AGENTS_DIR", str(agents))
    monkeypatch.setitem(machine.env, "LOOM_MODLE", "claude")
    worker = machine.start("worker", "--queues", "tool", "--name", "one", "--concurrency", "2")
    with killed_at_the_end(worker.pid):
        until(lambda: "exec_sql" in machine.output(), 30, f"the worker tells: {machine.output()}")
        assert machine.stop(worker) == 0
    log = machine.output()
    assert log.count("LOOM_MODLE: no such setting; did you mean LOOM_MODEL?") == 1
    assert log.count(f"{agents}/a.yaml:3: agent a: agent.tools[0]: there is no tool 'exec_sql'; did you mean") == 1
    assert log.count(f"{agents}/b.yaml:3: agent b: agent.config.max_turns: a whole number from 1 is needed") == 1


@pytest.mark.heavy
def test_beat_keeps_no_schedule_on_disk_and_ends_with_0(machine: Machine) -> None:
    beat = machine.start("beat")
    with killed_at_the_end(beat.pid):
        until(lambda: "beat: Starting" in machine.output(), 30, "beat starts")
        assert machine.stop(beat) == 0
    assert list(machine.cwd.iterdir()) == []


@contextmanager
def flower_of(machine: Machine, *, password: str | None, **settings: str) -> Iterator[Asking]:
    """`loom flower` as the settings say, asked by whoever has this password."""
    port = unused_port()
    process = machine.start("flower", LOOM_FLOWER_PORT=str(port), **settings)
    headers = urllib3.make_headers(basic_auth=f"loom:{password}") if password else {}
    with killed_at_the_end(process.pid), urllib3.PoolManager(retries=False, headers=headers) as web:
        until(lambda: listens(HOST, port), 30, f"Flower listens: {machine.output()}")
        yield lambda way, path, more=(): web.request(
            way, f"http://{HOST}:{port}{path}", headers={**headers, **dict(more)}
        )
        assert machine.stop(process) == 0


@pytest.mark.heavy
def test_flower_tells_nothing_without_its_password_but_that_it_is_up_and_writes_nothing(machine: Machine) -> None:
    with flower_of(machine, password=None) as ask:
        asked = {(way, path): ask(way, path) for path in flower_paths() for way in (*ASKING, *CHANGING)}
        answered = {key: answer.data for key, answer in asked.items() if answer.status == 200}
        assert set(answered) == {("GET", "/healthcheck"), ("GET", "/logout")}
        assert answered["GET", "/healthcheck"] == b"OK"
        assert {answer.status for answer in asked.values()} == {200, 401, 404, 405}
        assert {asked[way, path].status for way in CHANGING for path in flower_paths()} == {401}
        assert {asked["GET", path].status for path in ("/", "/tasks", "/api/workers", "/metrics", "/broker")} == {401}
        wrong = urllib3.make_headers(basic_auth="loom:guess").items()
        assert {ask("GET", path, wrong).status for path in ("/metrics", "/api/task/types", "/broker")} == {401}
        upgraded = {ask("GET", path, WEBSOCKET.items()).status for path in flower_paths()}
        assert upgraded <= {200, 401, 404, 405}
    assert list(machine.cwd.iterdir()) == []


@pytest.mark.heavy
def test_a_reader_of_flower_sees_every_page_and_changes_nothing(machine: Machine) -> None:
    with flower_of(machine, password=password(machine)) as ask:
        seen = {path: ask("GET", path).status for path in flower_paths()}
        assert {path for path, status in seen.items() if status == 200} == READABLE
        assert set(seen.values()) == {200, 400, 404, 405, 503}
        assert [path for path, status in seen.items() if status == 503] == ["/api/task/result/x"]  # there are none
        told = {(way, path): ask(way, path) for path in flower_paths() for way in CHANGING}
        assert told.pop(("POST", "/tasks/datatable")).status == 400  # it only asks: the page of tasks loads its rows so
        assert {answer.status for answer in told.values()} == {403}
        assert {answer.data.decode() for answer in told.values()} == {READ_ONLY}
        paging = "draw=1&start=0&length=10&order[0][column]=0&columns[0][data]=name"
        assert ask("POST", f"/tasks/datatable?{paging}").json()["data"] == []
        assert ask("POST", f"/tasks/datatable?{paging}", [("Sec-Fetch-Site", "cross-site")]).status == 403
        assert "LOOM_FLOWER_CONTROL=1" in READ_ONLY
        assert "# TYPE flower_worker_online gauge" in ask("GET", "/metrics").data.decode()
        queues = ask("GET", "/api/queues/length").json()["active_queues"]
        assert [queue["name"] for queue in queues] == list(QUEUES)
        page = ask("GET", "/broker").data.decode()
        assert [queue for queue in QUEUES if f"<td>{queue}</td>" not in page] == []
    assert list(machine.cwd.iterdir()) == []


@pytest.mark.heavy
def test_a_setting_lets_flowers_password_control_workers(machine: Machine) -> None:
    with flower_of(machine, password=password(machine), LOOM_FLOWER_CONTROL="1") as ask:
        assert ask("POST", "/api/worker/shutdown/nobody").status == 404
        revoked = ask("POST", "/api/task/revoke/nothing")
        assert (revoked.status, revoked.json()) == (200, {"message": "Revoked 'nothing'"})
    with flower_of(machine, password=None, LOOM_FLOWER_CONTROL="1") as ask:
        assert {ask("POST", path).status for path in flower_paths()} == {401, 403, 404, 405}


@pytest.mark.heavy
def test_flower_knows_a_worker_that_came_after_it_without_being_asked_for_it(machine: Machine) -> None:
    with flower_of(machine, password=password(machine)) as ask:
        worker = machine.start("worker", "--queues", "tool,webhook", "--name", "late", "--concurrency", "2")
        with killed_at_the_end(worker.pid):

            def queues() -> set[str]:
                # Not /worker/<name>, which would have Flower ask.
                workers = ask("GET", "/api/workers").json().items()
                found = [info.get("active_queues", ()) for name, info in workers if name.startswith("late@")]
                return {queue["name"] for queue in found[0]} if found else set()

            until(lambda: queues() == {"tool", "webhook"}, 60, f"Flower knows its queues: {machine.output()}")
            machine.stop(worker)


def flower_paths() -> set[str]:
    """One path for every rule of Flower's own; what a rule's pattern captures is x."""
    patterns = [rule[0] if isinstance(rule, tuple) else rule.regex.pattern for rule in handlers]
    paths = {re.sub(r"\(.+?\)", "x", pattern.removesuffix("$").removesuffix("/?")) for pattern in patterns}
    return {path.replace(".*", "/nowhere") for path in paths}


def password(machine: Machine) -> str:
    return home.flower_password(machine.home).text


@pytest.mark.heavy
def test_flower_says_in_one_line_that_its_port_is_taken(machine: Machine) -> None:
    with socket.create_server((HOST, 0)) as taken:
        flower = machine.start("flower", "--port", str(taken.getsockname()[1]))
        assert flower.wait(timeout=60) == 1
    last = machine.output().splitlines()[-1]
    assert last.startswith(f"loom flower: cannot listen on {HOST}:")


@pytest.mark.heavy
def test_no_password_stands_on_a_command_line(machine: Machine) -> None:
    port = unused_port()
    flower = machine.start("flower", "--port", str(port))
    with killed_at_the_end(flower.pid):
        until(lambda: listens(HOST, port), 30, "Flower listens")
        command_line = Path(f"/proc/{flower.pid}/cmdline").read_text()
        machine.stop(flower)
    assert password(machine) not in command_line
    assert sys.executable in command_line
