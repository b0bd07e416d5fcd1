"""Processes that prepare one database at the same moment."""

import subprocess
import sys
from pathlib import Path

import pytest

from loom_worker.core.settings import from_env
from loom_worker.store import schema
from loom_worker.store.prepare import version_of

pytestmark = pytest.mark.heavy


def test_processes_that_start_together_make_one_database_between_them(tmp_path: Path) -> None:
    code = (
        "import sys, alembic.command, alembic.config\n"
        "from loom_worker.core.settings import from_env\n"
        "from loom_worker.store.prepare import prepare\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "prepare(from_env({'LOOM_HOME': sys.argv[1]}))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[1] for process in processes] == ["", "", ""]
    assert version_of(from_env({"LOOM_HOME": str(tmp_path)}).database_url) == schema.VERSION
