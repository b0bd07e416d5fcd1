import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.log_lines import records

pytestmark = pytest.mark.integration


def test_a_process_of_one_turn_logs_like_any_other_also_what_ends_it(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    environ = {"PATH": os.environ["PATH"], "LOOM_HOME": str(tmp_path / "home"), "LOOM_LOG_FORMAT": "json"}
    command = (sys.executable, "-m", "loom_worker.runtime.isolated", "lane", "token", "turn_1", "1", "")
    done = subprocess.run(command, input="{}", env=environ, capture_output=True, text=True, check=False)
    [line] = records(done.stderr)  # it finds no database
    assert (done.returncode, line["message"]) == (1, "ended by an error that nothing caught")
    assert "no such table" in line["exception"]
