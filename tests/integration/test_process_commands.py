"""`loom worker`, `beat` and `flower` as processes on a real Valkey."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from flower.urls import handlers
from redis import Redis

from loom_worker.core.settings import embedded_socket
from loom_worker.supervisor import home, valkey
from loom_worker.supervisor.ready import listens
from loom_worker.supervisor.specs import loom_command
from tests.support.processes import killed_at_the_end
from tests.support.shipped_patterns import share_index
from tests.support.until import until
from tests.support.webhook_receiver import unused_port

pytestmark = [pytest.mark.integration, pytest.mark.takes(12)]
HOST = "127.0.0.1"


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
        command = valkey.argv(valkey.find_binary(), socket_path=socket_path, data_dir=self.home / "valkey")
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(lambda: valkey.is_open(socket_path), 10, "Valkey takes connections")
        self.redis = Redis(unix_socket_path=str(socket_path), decode_responses=True, socket_timeout=5)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.home / "output").open("ab") as output:
            command = [*loom_command(), *arguments]
            return subprocess.Popen(command, env=self.env, cwd=self.cwd, stdout=output, stderr=output)

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


@pytest.mark.heavy
def test_flower_tells_nothing_without_its_password_but_that_it_is_up_and_writes_nothing(machine: Machine) -> None:
    port = unused_port()
    url = f"http://{HOST}:{port}"
    flower = machine.start("flower", "--port", str(port))
    with killed_at_the_end(flower.pid), urllib3.PoolManager(retries=False) as web:
        until(lambda: listens(HOST, port), 30, f"Flower listens: {machine.output()}")
        ways = [(way, path) for path in flower_paths() for way in ("GET", "POST")]
        asked = {(way, path): web.request(way, url + path) for way, path in ways}
        answered = {key: answer.data for key, answer in asked.items() if answer.status == 200}
        assert set(answered) == {("GET", "/healthcheck"), ("GET", "/logout")}
        assert answered["GET", "/healthcheck"] == b"OK"
        assert {answer.status for answer in asked.values()} == {200, 401, 403, 404, 405}
        assert {asked["GET", path].status for path in ("/", "/tasks", "/api/workers", "/metrics")} == {401}
        wrong, right = (urllib3.make_headers(basic_auth=f"loom:{it}") for it in ("guess", password(machine)))
        assert {web.request("GET", url + path, headers=wrong).status for path in ("/metrics", "/api/task/types")} == {
            401
        }
        assert web.request("GET", f"{url}/api/task/types", headers=right).status == 200
        metrics = web.request("GET", f"{url}/metrics", headers=right)
        assert (metrics.status, b"# TYPE flower_worker_online gauge" in metrics.data) == (200, True)
        assert machine.stop(flower) == 0
    assert list(machine.cwd.iterdir()) == []


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
