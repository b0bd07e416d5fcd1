import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from loom_worker.core.settings import from_env
from loom_worker.core.values.problems import Problem
from loom_worker.supervisor import home
from loom_worker.supervisor.decide import Row, Spec
from loom_worker.supervisor.processes import Processes
from loom_worker.supervisor.ready import listens, readiness
from loom_worker.supervisor.watcher import FINDINGS_S, LATE_AFTER_S, Places, Secrets, Watcher
from tests.support.http_server import Exchange, serving

ROWS = (Row(Spec("web", ("w",)), pid=41), Row(Spec("beat", ("b",))))


@contextmanager
def flower() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def ready(exchange: Exchange) -> None:
    exchange.answer(200, b'{"status": "ready"}')


def not_ready(exchange: Exchange) -> None:
    exchange.answer(503, b'{"title": "not-ready", "detail": "no worker"}', content_type="application/problem+json")


def watcher(directory: Path, url: str, *, flower_port: int, said: list[str], age_s: float = 0.0) -> Watcher:
    home.prepare(directory)
    port = int(url.rpartition(":")[2])
    return Watcher(
        from_env({"LOOM_HOME": str(directory)}),
        Places(port=port, wanted_port=port, flower_port=flower_port, host="127.0.0.1"),
        Processes(directory / home.LOGS, {}),
        secrets=Secrets(home.flower_password(directory), webhook=None),
        began_s=time.monotonic() - age_s,
        say=said.append,
    )


def test_the_screen_is_shown_once_when_web_and_flower_serve(tmp_path: Path) -> None:
    said: list[str] = []
    with serving(ready) as url, flower() as port:
        watching = watcher(tmp_path, url, flower_port=port, said=said)
        pauses_s = [watching.look(ROWS, time.monotonic()) for _ in range(3)]
    assert len(said) == 1
    assert f"  curl -s -X POST {url}/v1/sessions/demo/turns" in said[0]
    assert min(pauses_s) >= 1.0


@dataclass
class Looking:
    """Findings that come when the test says so."""

    found: tuple[Problem, ...] | None = None

    def problems(self) -> tuple[Problem, ...] | None:
        return self.found


def test_the_screen_waits_for_what_is_wrong_and_says_it(tmp_path: Path) -> None:
    said: list[str] = []
    looking = Looking()
    with serving(ready) as url, flower() as port:
        watching = watcher(tmp_path, url, flower_port=port, said=said)
        watching.tell(looking)
        assert watching.look(ROWS, time.monotonic()) < 1.0
        assert said == []
        looking.found = (Problem("is broken", file="/a.yaml", line=3),)
        watching.look(ROWS, time.monotonic())
        watching.look(ROWS, time.monotonic())
    assert len(said) == 1
    assert "with 1 problem:\n  problem  /a.yaml:3: is broken\n" in said[0]


def test_what_is_found_out_too_late_is_said_afterwards_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    looking = Looking()
    with serving(ready) as url, flower() as port:
        watching = watcher(tmp_path, url, flower_port=port, said=said)
        watching.tell(looking)
        watching.look(ROWS, time.monotonic())
        began_s = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: began_s + FINDINGS_S + 1)
        watching.look(ROWS, time.monotonic())
        assert "still being looked at" in said[0]
        looking.found = (Problem("is broken", file="/a.yaml", line=3),)
        watching.look(ROWS, time.monotonic())
        watching.look(ROWS, time.monotonic())
    assert said[1:] == ["agents and tools are looked at, with 1 problem:\n  problem  /a.yaml:3: is broken"]


def test_nothing_is_said_before_flower_listens_too(tmp_path: Path) -> None:
    said: list[str] = []
    with serving(ready) as url:
        pause_s = watcher(tmp_path, url, flower_port=free_port(), said=said).look(ROWS, time.monotonic())
    assert said == []
    assert pause_s < 1.0


def test_after_a_minute_the_reason_and_the_logs_are_told_once(tmp_path: Path) -> None:
    said: list[str] = []
    with serving(not_ready) as url:
        watching = watcher(tmp_path, url, flower_port=free_port(), said=said, age_s=LATE_AFTER_S + 1)
        (tmp_path / home.LOGS / "web.log").write_text("cannot reach the moon\n")
        watching.look(ROWS, time.monotonic())
        watching.look(ROWS, time.monotonic())
    assert len(said) == 1
    assert "no worker" in said[0]
    assert "cannot reach the moon" in said[0]


def test_the_state_file_follows_the_processes(tmp_path: Path) -> None:
    said: list[str] = []
    with serving(not_ready) as url:
        watching = watcher(tmp_path, url, flower_port=free_port(), said=said)
        watching.look(ROWS, time.monotonic())
        first = home.read_state(tmp_path)
        watching.look((replace(ROWS[0], pid=42), replace(ROWS[1], pid=43)), time.monotonic())
        second = home.read_state(tmp_path)
    assert first is not None
    assert second is not None
    assert (first.url, first.children) == (url, {"web": 41})
    assert second.children == {"web": 42, "beat": 43}
    assert second.started == first.started


def test_readiness_tells_ready_from_not_ready_from_nobody() -> None:
    with serving(ready) as url:
        assert readiness(url) == {"ready": True, "status": "ready"}
    with serving(not_ready) as url:
        assert readiness(url) == {"ready": False, "title": "not-ready", "detail": "no worker"}
    assert readiness(url) is None


def test_readiness_survives_what_is_not_json() -> None:
    with serving(lambda exchange: exchange.answer(200, b"<html>")) as url:
        assert readiness(url) == {"ready": True, "answer": "<html>"}
    with serving(lambda exchange: exchange.answer(503, json.dumps([1]).encode())) as url:
        assert readiness(url) == {"ready": False, "answer": [1]}


def test_a_port_listens_only_while_somebody_does() -> None:
    with flower() as port:
        assert listens("127.0.0.1", port)
    assert not listens("127.0.0.1", port)
