import io
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_worker.tools import child_main, targets
from loom_worker.tools.pool import LINE_CHARS, MAX_LINES, CapturedOutput, Pool
from tests.support.callers import CALLER

LOUD = """
import os, sys
from loom_worker.tools.declare import tool

@tool
def forecast(lines: int) -> str:
    "Say much."
    print("sunny\\u202e" + "y" * 5000)
    print("\\x1b[31mred", file=sys.stderr)
    os.system("echo from a program")
    for number in range(lines):
        print(number)
    return "done"
"""


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(child_main.command(), most=1, environ=os.environ)
    yield pool
    pool.close()


def end_listening() -> None:
    for thread in threading.enumerate():
        if thread.name == "what tools print":
            thread.join(60)
            assert not thread.is_alive()


def test_what_a_tool_prints_is_logged_under_its_name_cleaned_and_cut(
    tmp_path: Path, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    (forecast,) = targets.tools("loud.py", tmp_path)
    with caplog.at_level(logging.INFO, "loom_worker.tools.pool"):
        outcome = pool.run(forecast, {"lines": 20_000}, CALLER, timeout_s=20, max_bytes=1000)
        pool.close()
        end_listening()
    said = [record.getMessage() for record in caplog.records]
    assert outcome.content == "done"
    assert said[0].startswith("tool forecast: sunnyyyy")
    assert len(said[0]) == len("tool forecast: ") + LINE_CHARS
    assert said[1:3] == ["tool forecast: [31mred", "tool forecast: from a program"]
    assert said[MAX_LINES] == "tool forecast prints too much: the rest of this call's output is left out"
    assert len(said) == MAX_LINES + 1


def test_a_line_that_shows_nothing_is_none(caplog: pytest.LogCaptureFixture) -> None:
    read_end, write_end = os.pipe()
    with caplog.at_level(logging.INFO, "loom_worker.tools.pool"):
        with open(write_end, "wb", buffering=0) as out:
            CapturedOutput(io.FileIO(read_end))
            out.write(b"\n" * 2 * MAX_LINES + "\u200b\nx".encode())
        end_listening()
    assert [record.getMessage() for record in caplog.records] == ["tool process: x"]
