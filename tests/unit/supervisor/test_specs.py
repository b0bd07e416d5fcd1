import subprocess
from pathlib import Path

import pytest

from loom_worker.core.settings import from_env
from loom_worker.supervisor.decide import Spec
from loom_worker.supervisor.specs import loom_command, specs


def named(home: Path, **env: str) -> dict[str, Spec]:
    settings = from_env({"LOOM_HOME": str(home), **env})
    return {spec.name: spec for spec in specs(settings, flower_port=5556)}


def test_a_machine_runs_two_workers_for_turns_and_one_for_all_other_queues(tmp_path: Path) -> None:
    queues = [s.argv[s.argv.index("--queues") + 1] for s in named(tmp_path).values() if "--queues" in s.argv]
    assert queues.count("turn,judge,workflow") == 2
    assert sorted({name for each in queues for name in each.split(",")}) == [
        "judge",
        "summary",
        "tool",
        "trace",
        "turn",
        "webhook",
        "workflow",
    ]


def test_the_embedded_server_is_run_only_when_no_other_is_named(tmp_path: Path) -> None:
    assert named(tmp_path)["valkey"].is_foundation
    assert "valkey" not in named(tmp_path, LOOM_REDIS_URL="redis://127.0.0.1:6379/0")


def test_the_web_stops_first_and_the_server_last(tmp_path: Path) -> None:
    order = sorted(named(tmp_path).values(), key=lambda spec: spec.stop_stage)
    assert [spec.name for spec in order] == ["web", "worker-1", "worker-2", "worker-3", "beat", "flower", "valkey"]


def test_a_worker_shows_in_ps_as_loom_worker(tmp_path: Path) -> None:
    assert "loom worker" in " ".join(named(tmp_path)["worker-1"].argv)


@pytest.mark.parametrize("name", ["web", "worker-1", "worker-3", "beat", "flower"])
def test_every_command_line_is_one_that_loom_takes(tmp_path: Path, name: str) -> None:
    # --help after the options still refuses one that does not exist.
    done = subprocess.run([*named(tmp_path)[name].argv, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:11]) == (0, "Usage: loom"), done.stderr


def test_the_command_that_prepares_is_one_that_loom_takes() -> None:
    done = subprocess.run([*loom_command(), "prepare", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0


def test_the_procfile_runs_the_same_processes_on_a_redis_of_its_own(tmp_path: Path) -> None:
    lines = (Path(__file__).parents[3] / "Procfile").read_text(encoding="utf-8").splitlines()
    listed = {name: command.split() for name, _, command in (line.partition(": ") for line in lines)}
    started = named(tmp_path, LOOM_REDIS_URL="redis://127.0.0.1:6379/0")
    skipped = len(loom_command())
    # Only `loom up` looks for a free port for Flower.
    own = {
        name: [word for word in spec.argv[skipped:] if word not in ("--port", "5556")] for name, spec in started.items()
    }
    assert {name: words[1:] for name, words in listed.items()} == own
