"""Processes die where they are told to, and nowhere else."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import loom_worker
from loom_worker.core import crash_points

PROGRAM = """
import sys

from loom_worker.core import crash_points
from loom_worker.core.settings import from_env

settings = from_env({"LOOM_HOME": sys.argv[1], "LOOM_CRASHPOINTS": sys.argv[2]})
crash_points.arm(settings.crash_points, settings.home / "crashes")
for point in sys.argv[3:]:
    crash_points.reached(point)
"""


def run(home: Path, points: str, *passed: str) -> int:
    """The exit status of a process that passes these points."""
    return subprocess.run([sys.executable, "-c", PROGRAM, str(home), points, *passed], check=False).returncode


def test_a_process_dies_at_its_point_and_leaves_a_file_that_says_so(tmp_path: Path) -> None:
    assert run(tmp_path, "turn.claimed", "turn.leased", "turn.claimed") == -signal.SIGKILL
    assert [path.name for path in (tmp_path / "crashes").iterdir()] == ["turn.claimed.0"]


def test_only_as_many_die_as_were_asked_for(tmp_path: Path) -> None:
    statuses = [run(tmp_path, "turn.claimed*2,tool.ran", "turn.claimed") for _ in range(3)]
    assert statuses == [-signal.SIGKILL, -signal.SIGKILL, 0]


def test_unarmed_no_point_does_anything() -> None:
    crash_points.arm({}, Path("/nowhere"))
    for point in crash_points.POINTS:
        assert not crash_points.is_armed(point)
        crash_points.reached(point)


def test_every_point_is_reached_somewhere_in_the_code() -> None:
    root = Path(loom_worker.__file__).parent
    code = "\n".join(path.read_text() for path in root.rglob("*.py"))
    assert set(re.findall(r'crash_points\.reached\("([a-z._]+)"\)', code)) == set(crash_points.POINTS)
