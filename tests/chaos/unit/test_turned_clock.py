"""A process whose clock is turned can still wait, its children too."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos import turned_clock

FAKETIME = turned_clock.library()
SCRIPT = """
import subprocess, sys, time
began_s = time.monotonic()
time.sleep(0.05)
print(time.time(), time.monotonic() - began_s)
if sys.argv[1:]:
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""


@pytest.mark.skipif(FAKETIME is None, reason="there is no libfaketime here")
def test_its_clock_is_an_hour_ahead_and_it_sleeps_as_long_as_it_is_told(tmp_path: Path) -> None:
    assert FAKETIME is not None
    environ = {**os.environ, **turned_clock.environ(FAKETIME, tmp_path)}
    began_s = time.time()
    command = [sys.executable, "-c", SCRIPT, SCRIPT]
    told = subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout
    ended_s = time.time()
    parent, child = (tuple(map(float, line.split())) for line in told.splitlines())
    for wall_s, slept_s in (parent, child):
        assert began_s + 3600 <= wall_s <= ended_s + 3600
        assert 0.05 <= slept_s <= ended_s - began_s
