"""Processes that count into one database, while they are killed."""

import signal
import subprocess
import sys

import pytest

from loom_worker.core import metrics
from loom_worker.core.settings import Settings
from loom_worker.store.database import Database
from loom_worker.store.metric_values import MetricValues

pytestmark = [pytest.mark.integration, pytest.mark.heavy]

PROGRAM = """
import os, signal, sys, threading
from loom_worker.core import metrics
from loom_worker.runtime.metrics_flusher import MetricsFlusher
from loom_worker.store.database import Database
from loom_worker.store.folding import Folding
from loom_worker.store.metric_values import MetricValues

def count(times):
    for n in range(times):
        metrics.TOOL_CALLS.count("look", "failed" if n % 4 == 0 else "completed")
        metrics.TOOL_DURATION.observe(0.3, "look")

url, times, end = sys.argv[1], int(sys.argv[2]), sys.argv[3]
database = Database(url, sync="normal")
flusher = MetricsFlusher(MetricValues(database), Folding(database))
threads = [threading.Thread(target=count, args=(times // 4,)) for _ in range(4)]
for thread in threads: thread.start()
for _ in range(20): flusher.flush()
for thread in threads: thread.join()
flusher.flush()
count(7)
if end == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
flusher.stop()
"""


def begin(settings: Settings, times: int, end: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, settings.database_url, str(times), end])


def test_sums_are_right_whoever_is_killed_and_whoever_comes_after(settings: Settings, database: Database) -> None:
    together = [begin(settings, 4_000, "ends"), begin(settings, 2_000, "killed")]
    ends = [process.wait(timeout=120) for process in together]
    assert ends == [0, -signal.SIGKILL]
    assert total(database) == 4_000 + 7 + 2_000  # what a killed process had not stored yet is all that is lost
    assert begin(settings, 400, "ends").wait(timeout=120) == 0
    assert total(database) == 4_000 + 7 + 2_000 + 400 + 7
    found = MetricValues(database).all()
    buckets = found[metrics.TOOL_DURATION, ("look",)]
    assert sum(buckets[1:]) == buckets[1 + metrics.TOOL_DURATION.bounds.index(0.5)] == total(database)
    assert buckets[0] == pytest.approx(0.3 * total(database))


def total(database: Database) -> float:
    found = MetricValues(database).all()
    return sum(found[metrics.TOOL_CALLS, ("look", status)][0] for status in ("failed", "completed"))
