"""What a command does when its output cannot be written, seen from outside its process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_loom import FakeLoom
from tests.support.http_server import serving


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["skill", "--json"], ["turns"], ["tools", "--json"], ["ask", "?"]])
def test_output_that_cannot_be_written_is_one_line_and_exits_1(
    tmp_path: Path, arguments: list[str], unbuffered: str
) -> None:
    empty = {"object": "list", "data": []}
    fake = FakeLoom(
        events=[("turn.completed", {})],
        turn={"status": "completed", "output_text": "Hello"},
        pages={"/v1/turns": empty, "/v1/tools": empty},
    )
    command = [sys.executable, "-m", "loom_worker.cli.main", *arguments]
    with serving(fake) as url, open("/dev/full", "wb") as full:
        env = {**os.environ, "LOOM_HOME": str(tmp_path), "LOOM_URL": url, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=env)
    told = "loom: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)
