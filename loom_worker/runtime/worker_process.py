"""A worker process, from its start until a signal stops it."""

import gc
import logging
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

from celery import Task, signals
from celery.exceptions import SecurityWarning

from loom_worker.agents.load import load
from loom_worker.core import log_context
from loom_worker.core.isolation import process_env
from loom_worker.core.settings import Settings
from loom_worker.runtime import build
from loom_worker.runtime.components import Components
from loom_worker.runtime.installation import Inspection
from loom_worker.runtime.sweeping import keep_logging
from loom_worker.tasks.app import app, configure
from loom_worker.tasks.calm_events import CalmEvents
from loom_worker.tasks.repairs import keep_signals_silent

log = logging.getLogger(__name__)


def run_worker(settings: Settings, *, queues: Sequence[str], concurrency: int, name: str) -> int:
    """Work on these queues until SIGTERM; returns the exit status.

    Args:
        concurrency: threads; a turn waits for the network most of its time.
        name: the node's name, to which the host's is added; unlike any other worker's on this host.
    """
    configure(settings)
    process = build.start(replace(settings, worker_concurrency=concurrency), takes_turns="turn" in queues, node=name)
    # The signal keeps weak references: these functions live as long as this one runs.
    ready, stopping = _when_ready(process), _when_stopping(process)
    signals.setup_logging.connect(keep_logging)
    signals.task_prerun.connect(_begin_task)
    signals.worker_ready.connect(ready)
    signals.worker_shutting_down.connect(stopping)
    # Celery warns root of unpickling what strangers send; Loom's messages are JSON, and containers run as root.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    app.steps["consumer"].add(CalmEvents)
    keep_signals_silent()
    worker = app.Worker(
        hostname=f"{name}@",
        # Threads: prefork would cost a process for every turn that waits, gevent leaked connections (measured).
        pool="threads",
        concurrency=concurrency,
        queues=list(queues),
        loglevel=settings.log.level,
        # Mingle costs a second at start and makes the large replies of celery/kombu#294; gossip tells workers of each
        # other, and no worker of ours asks.
        without_mingle=True,
        without_gossip=True,
        task_events=True,
        quiet=True,
    )
    if "turn" in queues:
        # Before it takes turns: the first one would otherwise wait seconds for the library and the token table.
        process.components.registry.warm()
    if process_env.PROVIDER in process_env.of_worker(queues):
        _tell_problems(settings, process.components)
    # What is loaded by now stays: the garbage collector need not look through it again with every full collection.
    gc.collect()
    gc.freeze()
    try:
        worker.start()
    finally:
        # Turns end or are handed over after Celery has closed its own way of sending events.
        process.worker.events.send_rest(app, node=worker.hostname)
        process.stop()
    return int(worker.exitcode or 0)


def _tell_problems(settings: Settings, fitted: Components) -> None:
    """Log what of agents and tools cannot work, as far as it can be seen without connecting to anything.

    In a thread that keeps neither the worker nor its end waiting: users' files are imported for it.
    """
    inspection = Inspection(settings, fitted.registry, calls_model=True, reaches_out=False)

    def tell() -> None:
        agents = load(settings.agents_dir)
        reported = {*settings.problems, *agents.problems}  # by now they are in the log
        for problem in inspection.problems(agents):
            if problem not in reported:
                log.warning("%s", problem)

    threading.Thread(target=tell, name="loom-inspection", daemon=True).start()


def _begin_task(task_id: str, task: Task, **_: object) -> None:
    """Celery calls it in the task's own thread: what that logs from now on leads to the task in Flower."""
    log_context.begin({"task": f"{task.name}|{task_id}"})


def _when_ready(process: build.Process) -> Callable[..., None]:
    def begin(**_: object) -> None:
        process.worker.turns.renewer.start()
        process.sweeper.start()
        process.flusher.start()
        process.components.metrics.start()

    return begin


def _when_stopping(process: build.Process) -> Callable[..., None]:
    def ask(**_: object) -> None:
        process.worker.turns.stopping.ask()

    return ask
