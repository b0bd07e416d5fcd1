"""Runs ``sqlite_guard`` in a child process for each statement and kills it when its time is over (20-40 ms a call)."""

import json
import logging
import os
import subprocess

from loom_worker.backends.results import encode
from loom_worker.backends.sqlite_guard import GuardRequest
from loom_worker.backends.statements import names_in_backticks
from loom_worker.core.child_process import module_command
from loom_worker.core.errors import ToolFailed
from loom_worker.core.isolation import process_env
from loom_worker.core.values.json import Json

log = logging.getLogger(__name__)

START_S = 0.5
"""Time for the child to start, on top of the query's own."""


def query(request: GuardRequest) -> Json:
    """Run one statement on a SQLite file that must exist; returns columns, rows, row_count and truncated.

    Raises:
        ToolFailed: the statement is refused, fails, takes too long or needs too much memory.
    """
    # -I -S: no site packages, no PYTHON* variables; the child starts in 20 ms and imports nothing but the guard.
    # Our pid lets it end with us: once the child runs, getppid could already name another process.
    command = [*module_command("loom_worker.backends.sqlite_guard", "-I", "-S"), str(os.getpid())]
    timeout_s = request["timeout_s"]
    if (named := names_in_backticks(request["sql"])) != request["sql"]:
        request = {**request, "named_sql": named if named[:7].upper() == "EXPLAIN" else f"EXPLAIN {named}"}
    try:
        sent = encode(request).encode()
    except UnicodeEncodeError as error:
        raise ToolFailed("the query contains half of a character (a lone surrogate)", "INVALID_INPUT") from error
    try:
        done = subprocess.run(
            command,
            input=sent,
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
