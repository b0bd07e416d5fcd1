"""What the tasks of this worker process work with; ``runtime`` puts it here when the process starts."""

from dataclasses import dataclass

from loom_worker.memory.compress import Desk
from loom_worker.turn.runtime import TurnWorker
from loom_worker.webhook.deliver import Deliverer


@dataclass(frozen=True, slots=True)
class Worker:
    """The parts of a worker process, one for each kind of task."""

    turns: TurnWorker
    webhooks: Deliverer
    summaries: Desk


_worker: Worker | None = None


def begin(worker: Worker) -> None:
    """Make this process a worker."""
    global _worker  # Celery calls tasks by name alone: they find their parts here
    _worker = worker


def current() -> Worker:
    """The parts of this worker process."""
    if _worker is None:
        raise RuntimeError("this process is not a worker: runtime.build.start(settings) was not called")
    return _worker
