"""`loom up` on a Redis of its own that nobody started: it says so, once, and can be stopped."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from loom_worker.supervisor.specs import loom_command
from tests.support.processes import killed_at_the_end
from tests.support.until import until
from tests.support.webhook_receiver import unused_port

pytestmark = [pytest.mark.heavy, pytest.mark.integration]


def test_a_redis_that_does_not_answer_is_named_within_seconds_and_once(tmp_path: Path) -> None:
    redis, output = f"127.0.0.1:{unused_port()}", tmp_path / "output"
    env = {
        "PATH": os.environ["PATH"],
        "LOOM_HOME": str(tmp_path / "home"),
        "LOOM_REDIS_URL": f"redis://user:hidden@{redis}/0",
    }
    with output.open("wb") as said:
        up = subprocess.Popen([*loom_command(), "up", "--port", str(unused_port())], env=env, stdout=said, stderr=said)
    with killed_at_the_end(up.pid):
        told = f"the Redis of LOOM_REDIS_URL at {redis} does not answer"
        until(lambda: told in output.read_text(), 30, f"the outage is told: {output.read_text()}")
        up.send_signal(signal.SIGTERM)
        assert up.wait(timeout=60) == 0
    text = output.read_text()
    assert text.count("does not answer") == 1
    assert "hidden" not in text
