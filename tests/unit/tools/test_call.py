import contextvars
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Outcome, Tool
from loom_worker.tools import child_main, targets
from loom_worker.tools.execution import call_tool
from loom_worker.tools.pool import Pool
from tests.support.callers import CALLER

SPEC = ToolSpec("execute_sql", "Runs SQL.", {"type": "object"})


def tool(run: Callable[[Json], Any], *, is_bounded: bool = False, timeout_s: float = 30.0) -> Tool:
    return Tool(SPEC, lambda arguments, _: run(arguments), is_bounded=is_bounded, timeout_s=timeout_s)


def called(given: Tool, *, timeout_s: float = 5.0, pool: Pool | None = None) -> Outcome:
    return call_tool(given, {"a": 1}, CALLER, timeout_s=timeout_s, pool=pool, max_bytes=1000)


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(child_main.command(), most=1, environ=os.environ)
    yield pool
    pool.close()


def test_a_bounded_tool_runs_in_the_callers_thread_another_in_one_of_its_own_and_one_with_origin_in_a_child(
    tmp_path: Path, pool: Pool
) -> None:
    def where(_: Json) -> list[int]:
        return [os.getpid(), threading.get_ident()]

    (tmp_path / "where.py").write_text(
        "import os\nfrom loom_worker.tools.declare import tool\n"
        "@tool\ndef where(a: int) -> int:\n    'Tell the process.'\n    return os.getpid()\n"
    )
    (in_child,) = targets.tools("where.py", tmp_path)
    here = f"[{os.getpid()},{threading.get_ident()}]"
    assert called(tool(where, is_bounded=True)).content == here
    assert called(tool(where)).content != here
    assert called(tool(where)).content.startswith(f"[{os.getpid()},")
    assert int(called(in_child, pool=pool).content) not in (os.getpid(), 0)
    assert called(in_child, pool=None).content == str(os.getpid())


def test_a_tool_in_a_thread_sees_the_callers_context() -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")
    trace.set("abc")
    assert called(tool(lambda _: trace.get())).content == "abc"


@pytest.mark.parametrize("is_bounded", [True, False])
def test_a_failure_is_an_outcome_and_the_log_has_its_code_but_nothing_of_what_it_says(
    is_bounded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Json) -> str:
        raise ValueError("the whole story")

    found = called(tool(fail, is_bounded=is_bounded))
    assert (found.status, found.content, found.is_fault) == ("failed", "ValueError: the whole story", True)
    assert [record.getMessage() for record in caplog.records] == ["tool execute_sql: failed (no code)"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_what_the_model_asked_wrongly_is_no_error_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Json) -> str:
        raise ToolFailed("no such column", "INVALID_INPUT")

    with caplog.at_level(logging.INFO):
        called(tool(fail))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.INFO, "tool execute_sql: failed (INVALID_INPUT)")
    ]


@pytest.mark.parametrize(("own_s", "process_s"), [(0.05, 30.0), (30.0, 0.05)])
def test_a_tool_that_does_not_return_times_out_by_the_shorter_limit(
    own_s: float, process_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    def hang(_: Json) -> str:
        release.wait(60)
        return "late"

    outcome = called(tool(hang, timeout_s=own_s), timeout_s=process_s)
    assert outcome == Outcome("timeout", "timed out after 0.05 s", is_fault=True)
    [left] = [thread for thread in threading.enumerate() if thread.name == "tool execute_sql"]
    assert left.daemon
    assert str(left.ident) in caplog.text
    release.set()
    left.join(60)
    assert not left.is_alive()


def test_a_result_that_is_too_long_is_cut_wherever_it_was_made(tmp_path: Path, pool: Pool) -> None:
    (tmp_path / "long.py").write_text(
        "from loom_worker.tools.declare import tool\n"
        "@tool\ndef long(a: int) -> str:\n    'Be long.'\n    return 'é' * 5000\n"
    )
    (in_child,) = targets.tools("long.py", tmp_path)
    for given in (tool(lambda _: "é" * 5000), tool(lambda _: "é" * 5000, is_bounded=True), in_child):
        found = called(given, pool=pool)
        assert 990 <= len(found.content.encode()) <= 1000
        assert "this is the beginning of 10,000 bytes" in found.content


def test_what_users_import_loads_nothing_heavy() -> None:
    heavy = "jsonschema sqlalchemy anthropic tiktoken asyncio celery redis".split()
    modules = "loom_worker.tools.child_main, loom_worker.tools.declare"
    code = f"import sys, {modules}; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
