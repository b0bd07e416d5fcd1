"""Runs ``sqlite_guard`` in a child process for each statement, and kills it when its time is over (20-40 ms a call)."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import loom_worker
from loom_worker.backends.results import encode
from loom_worker.backends.sqlite_guard import QueryRequest
from loom_worker.core.errors import ToolFailed
from loom_worker.core.isolation import process_env
from loom_worker.core.values.json import Json

log = logging.getLogger(__name__)

START_S = 0.5
"""Time for the child to start, on top of the query's own."""

_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from loom_worker.backends.sqlite_guard import main; main()"
"""The package's folder comes last, so nothing beside it can stand in for the standard library."""


def query(order: QueryRequest) -> Json:
    """Run one statement on a SQLite file that must exist; return columns, rows, row_count and truncated.

    Raises:
        ToolFailed: the statement is refused, fails, takes too long or needs too much memory.
    """
    root = str(Path(loom_worker.__file__).parent.parent)
    # -I -S: no site packages, no PYTHON* variables; the child starts in 20 ms and imports nothing but the guard.
    # Its parent's pid lets it end with us: asked of the system once it runs, the answer could be another process.
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, root, str(os.getpid())]
    timeout_s = order["timeout_s"]
    try:
        asked = encode(order).encode()
    except UnicodeEncodeError as error:
        raise ToolFailed("the query contains half of a character (a lone surrogate)", "INVALID_INPUT") from error
    try:
        done = subprocess.run(
            command,
            input=asked,
            env=process_env.inherited(os.environ),
            capture_output=True,
            timeout=timeout_s + START_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        text = f"the query took longer than {timeout_s:g} s: select or group less"
        raise ToolFailed(text, "DATABASE_ERROR") from error
    if done.returncode != 0:
        text = "the query needs too much memory or processor time: select or group less"
        log.error("the guard ended with %d: %s", done.returncode, done.stderr.decode("utf-8", "replace"))
        raise ToolFailed(text, "DATABASE_ERROR")
    answer: Json = json.loads(done.stdout)
    if "failure" in answer:
        raise ToolFailed(answer["failure"], answer["code"])
    result: Json = answer["result"]
    return result
