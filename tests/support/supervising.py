"""A supervisor as a process of its own: ``python -m tests.support.supervising SPECS_FILE LOG_DIR``.

It looks every 50 ms: the pids in the file ``heartbeats`` live, and while there is a file ``unanswered`` they are idle.
It writes those it saw into the file ``seen``.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from loom_worker.lanes.readiness import Readiness, WorkerState
from loom_worker.supervisor.decide import Row, Spec
from loom_worker.supervisor.health_check import Rounds
from loom_worker.supervisor.processes import Processes
from loom_worker.supervisor.run import Supervisor


class _Quiet:
    """Looks at nothing; the loop wakes for signals and its own times. The file ``served`` says that the web has."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def has_served(self) -> bool:
        return (self._folder / "served").exists()

    def look(self, rows: Sequence[Row], now_s: float) -> float:
        return 60.0


def _look(folder: Path) -> Readiness:
    heartbeats = folder / "heartbeats"
    pids = [int(pid) for pid in heartbeats.read_text().split()] if heartbeats.exists() else []
    (folder / "seen").write_text(" ".join(map(str, pids)))
    workers = (WorkerState(str(pid), "here", frozenset({pid}), threads=1, busy=0, idle_s=60.0) for pid in pids)
    return Readiness(tuple(workers), 60.0 if (folder / "unanswered").exists() else 0.0)


def main(specs_file: str, log_dir: str) -> int:
    specs = [Spec(**{**fields, "argv": tuple(fields["argv"])}) for fields in json.loads(Path(specs_file).read_text())]
    gate = Path(log_dir) / "open"
    supervisor = Supervisor(
        specs,
        Processes(Path(log_dir), os.environ),
        is_open=lambda: gate.exists() or not any(spec.is_foundation for spec in specs),
        onlooker=_Quiet(Path(log_dir)),
        rounds=Rounds(lambda: _look(Path(log_dir)), host="here", every_s=0.05),
        say=lambda text: sys.stdout.write(text + "\n"),
    )
    # Line by line, as a test reads along.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a stream of its own, not pytest's
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
