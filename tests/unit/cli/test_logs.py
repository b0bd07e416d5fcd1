import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from loom_worker.cli.main import main

FILES = {
    "web.log.1": "2026-11-22 03:00:01 INFO  in  turn=turn_1\n2026-11-22 03:00:03 ERROR no  turn=turn_1\n    | E: 7\n",
    "web.log": "2026-11-22 03:00:05 INFO    accepted  turn=turn_2\n2026-99-99 03:00:05 odd\n",
    "worker-1.log": '{"time": "2026-11-22T03:00:02.500Z", "message": "begun", "turn": "turn_1"}\n{"time": "2026-11\n',
    "valkey.log": "7:M 22 Nov 2026 03:00:04.000 * Ready\n",
}


def told(folder: Path, *arguments: str, **env: str) -> list[str]:
    home = {"LOOM_HOME": str(folder), **env}
    return CliRunner().invoke(main, ["logs", *arguments], env=home).output.splitlines()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TZ", "UTC")
    (tmp_path / "logs").mkdir()
    for name, text in FILES.items():
        (tmp_path / "logs" / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_logs_of_all_processes_are_one_in_the_order_of_time(home: Path) -> None:
    words = [line.split()[-1] for line in told(home)]
    assert words == ["turn=turn_1", '"turn_1"}', '"2026-11', "turn=turn_1", "7", "Ready", "turn=turn_2", "odd"]


def test_a_turns_lines_come_with_their_tracebacks_and_a_processs_alone(home: Path) -> None:
    entries = [json.loads(line) for line in told(home, "--turn", "turn_1", "--json")]
    assert [entry["process"] for entry in entries] == ["web", "worker-1", "web"]
    assert (entries[2]["time"], entries[2]["text"].endswith("\n    | E: 7")) == ("2026-11-22T03:00:03.000Z", True)
    assert [line.split()[0] for line in told(home, "--process", "valkey")] == ["valkey"]
    assert [line.split()[-1] for line in told(home, "--lines", "1")] == ["odd"]


def test_a_home_without_logs_says_who_would_write_them(tmp_path: Path) -> None:
    assert told(tmp_path)[0].startswith(f"loom: {tmp_path}/logs has no log of any process: only those of `loom up`")
