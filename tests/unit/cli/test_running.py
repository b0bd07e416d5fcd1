import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loom_worker.cli.main import main
from loom_worker.supervisor import home
from tests.support.http_server import Exchange, serving
from tests.support.processes import is_alive

HOLDER = """
import os, signal, sys
from pathlib import Path
from loom_worker.supervisor import home
directory, url = Path(sys.argv[1]), sys.argv[2]
with home.locked(directory):
    state = home.State(os.getpid(), url, "http://127.0.0.1:5556", "2026-11-21T09:30:00Z", {"web": 41, "beat": 42})
    home.write_state(directory, state)
    print("held", flush=True)
    signal.pause()
"""


@contextmanager
def supervisor(directory: Path, url: str) -> Iterator[int]:
    home.prepare(directory)
    held = subprocess.Popen([sys.executable, "-c", HOLDER, str(directory), url], stdout=subprocess.PIPE, text=True)
    assert held.stdout is not None
    assert held.stdout.readline() == "held\n"
    yield held.pid
    held.kill()
    held.communicate()


def run(directory: Path, *arguments: str, **env: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"LOOM_HOME": str(directory), "LOOM_URL": None, **env})


def ready(exchange: Exchange) -> None:
    exchange.answer(200, b'{"status": "ready"}')


def not_ready(exchange: Exchange) -> None:
    exchange.answer(503, b'{"detail": "workers: none is alive"}')


def test_a_status_names_every_process_and_address_of_a_ready_loom(tmp_path: Path) -> None:
    with serving(ready) as url, supervisor(tmp_path, url) as pid:
        result = run(tmp_path, "status")
    assert result.exit_code == 0
    for words in (f"ready at {url}", f"pid {pid}", "http://127.0.0.1:5556", "web        pid 41", str(tmp_path)):
        assert words in result.stdout


def test_a_status_of_a_loom_that_is_not_ready_says_why_and_exits_1(tmp_path: Path) -> None:
    with serving(not_ready) as url, supervisor(tmp_path, url):
        result = run(tmp_path, "status")
    assert result.exit_code == 1
    assert "workers: none is alive" in result.stdout


def test_a_status_as_json_has_what_the_other_has(tmp_path: Path) -> None:
    with serving(ready) as url, supervisor(tmp_path, url) as pid:
        report = json.loads(run(tmp_path, "status", "--json").stdout)
    assert (report["running"], report["ready"], report["pid"], report["url"]) == (True, True, pid, url)
    assert report["children"] == {"web": 41, "beat": 42}


def test_a_loom_without_supervisor_is_found_by_its_address(tmp_path: Path) -> None:
    with serving(ready) as url:
        result = run(tmp_path, "status", LOOM_URL=url)
    assert result.exit_code == 0
    assert f"ready at {url}" in result.stdout


def test_clients_ask_the_loom_that_runs_on_their_home_unless_told_another(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(exchange: Exchange) -> None:
        asked.append(exchange.headers["Host"])
        exchange.answer(200, b'{"object": "list", "data": []}')

    with serving(answer) as own, serving(answer) as other, supervisor(tmp_path, own):
        run(tmp_path, "tools")
        run(tmp_path, "tools", "--url", other + "/")
    assert asked == [own.removeprefix("http://"), other.removeprefix("http://")]


ASKING = (
    ("status",),
    ("ask", "?"),
    ("chat",),
    ("sessions",),
    ("turns",),
    ("turns", "cancel", "turn_1"),
    ("agents",),
    ("tools",),
    ("patterns",),
    ("patterns", "match", "?"),
    ("usage",),
)


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_a_home_without_a_loom_does_not_talk_to_the_loom_of_another(tmp_path: Path, command: tuple[str, ...]) -> None:
    asked: list[str] = []

    def answer(exchange: Exchange) -> None:
        asked.append(exchange.path)
        exchange.answer(200, b'{"object": "list", "data": []}')

    mine, other = tmp_path / "mine", tmp_path / "other"
    with serving(answer) as url, supervisor(other, url):
        result = run(mine, *command, LOOM_PORT=url.rpartition(":")[2])
        assert run(other, "tools").exit_code == 0
    assert asked == ["/v1/tools"]
    assert result.exit_code == 1
    assert f"Loom is not running on {mine}; start it with `loom up`, or name another one by --url" in result.output
    assert not mine.exists()


def test_a_status_where_nothing_runs_names_no_address(tmp_path: Path) -> None:
    report = json.loads(run(tmp_path, "status", "--json", LOOM_PORT="8000").stdout)
    assert (report["running"], report["ready"], report["url"], report["home"]) == (False, False, None, str(tmp_path))


def test_a_loom_that_has_not_said_where_it_is_yet_is_said_to_be_starting(tmp_path: Path) -> None:
    with supervisor(tmp_path, "http://127.0.0.1:9"):
        (tmp_path / home.STATE).unlink()
        result = run(tmp_path, "ask", "?")
    assert (result.exit_code, result.stderr) == (
        1,
        f"loom: Loom is not running on {tmp_path} yet: it is just starting\n",
    )


def test_a_stop_says_that_nothing_is_left_and_is_right(tmp_path: Path) -> None:
    with supervisor(tmp_path, "http://127.0.0.1:9") as pid:
        result = run(tmp_path, "stop")
        assert (result.exit_code, result.stdout) == (0, "stopped; nothing is left running\n")
        assert not is_alive(pid)
    assert is_alive(os.getpid())


def test_a_status_of_another_loom_says_nothing_of_this_machines(tmp_path: Path) -> None:
    with serving(ready) as own, serving(not_ready) as other, supervisor(tmp_path, own) as pid:
        told = run(tmp_path, "status", "--url", other)
        report = json.loads(run(tmp_path, "status", "--json", LOOM_URL=other).stdout)
    assert told.exit_code == 1
    assert f"not ready at {other}" in told.stdout
    assert [words for words in (str(pid), str(tmp_path), "Flower", own) if words in told.stdout] == []
    assert (report["running"], report["pid"], report["home"], report["children"]) == (True, None, None, {})


def test_another_loom_that_is_not_there_does_not_run_though_this_machines_does(tmp_path: Path) -> None:
    with serving(ready) as own, supervisor(tmp_path, own):
        told = run(tmp_path, "status", "--url", "http://127.0.0.1:9")
    assert (told.exit_code, told.stdout) == (1, "Loom is not running at http://127.0.0.1:9\n")


def test_this_machines_loom_is_known_by_another_of_its_names(tmp_path: Path) -> None:
    with serving(ready) as own, supervisor(tmp_path, own) as pid:
        told = run(tmp_path, "status", "--url", own.replace("127.0.0.1", "localhost"))
    assert f"supervisor pid {pid}" in told.stdout
