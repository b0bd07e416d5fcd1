"""A process that compresses one session's memory with a scripted model: ``compressing_process LANE ANSWER``."""

import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from loom_worker.core import crash_points
from loom_worker.core.settings import from_env
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.memory.compress import Compressor
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.facts import Facts
from loom_worker.store.memory import Memories
from tests.unit.memory.summary.conversation import Says, means


def main(lane: str, answer: str) -> None:
    settings = from_env()
    crash_points.arm(settings.crash_points, settings.home / "crashes")
    database = Database(settings.database_url, sync="normal")
    rules = replace(means(Says(lambda _: answer)), tiers=MemoryTiers(batch_size=6))
    around: Any = SimpleNamespace(compression=lambda _: rules, alive=frozenset)
    parts = (Memories(database), Facts(database), Budgets(database), around, around)
    Compressor("worker-8", *parts, Stopping(1.0), threading.Semaphore(1)).compress(lane)


if __name__ == "__main__":
    main(*sys.argv[1:])
