"""What the tasks of this worker process work with; ``runtime`` puts it here when the process starts."""

from dataclasses import dataclass

from loom_worker.lanes.readiness import Threads
from loom_worker.lanes.slots import FreeSlots
from loom_worker.memory.compress import Compressor
from loom_worker.tasks.task_events import TaskEvents
from loom_worker.trace.export import Exporter
from loom_worker.turn.worker import TurnWorker
from loom_worker.webhook.deliver import Deliverer


@dataclass(frozen=True, slots=True)
class Worker:
    """The parts of a worker process, one for each kind of task."""

    turns: TurnWorker
    webhooks: Deliverer
    summaries: Compressor
    traces: Exporter
    events: TaskEvents
    """Reports that are to be sent."""


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


@dataclass(frozen=True, slots=True)
class CeleryThreads(Threads):
    """The threads of a Celery worker, by Celery's own books."""

    slots: FreeSlots | None = None
    """Those of the process: a thread that only waits for a lane is not at work."""

    def busy(self) -> int:
        """Tasks that run in this process now, of all its queues; those only fetched do not count."""
        from celery.worker import state  # only workers load it: the web has no use for a worker's parts

        return len(state.active_requests) - (self.slots.waiting if self.slots else 0)
