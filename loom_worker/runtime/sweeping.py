"""What the sweep works with: no models, tools or patterns, as beat, which only sweeps, should load none.

Each process makes its own ``Links``; ``ExpiringStores`` are what the sweep empties.
"""

import logging
import os
import secrets
import socket
import time
from dataclasses import dataclass, field
from typing import Any, Self

from celery import platforms, signals

from loom_worker import __version__
from loom_worker.core import crash_points, redis_client
from loom_worker.core.errors import LoomError
from loom_worker.core.isolation import process_env
from loom_worker.core.settings_tree import Settings, TraceSettings
from loom_worker.core.stopping import Stopping
from loom_worker.events.log import EventLog
from loom_worker.lanes.lanes import Lanes
from loom_worker.runtime.metrics_flusher import MetricsFlusher
from loom_worker.service.users import UserDeletions
from loom_worker.store.agent_errors import AgentErrors
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.blobs import BlobRows
from loom_worker.store.budgets import Budgets
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.memory import Memories
from loom_worker.store.metric_values import MetricValues
from loom_worker.store.outbox import Outbox
from loom_worker.store.retention import Retention
from loom_worker.store.runs import Runs
from loom_worker.store.sessions import Sessions
from loom_worker.store.trace_outbox import TraceOutbox
from loom_worker.tasks.app import app, configure
from loom_worker.tasks.dispatch import CeleryDispatcher, WakeupQueue
from loom_worker.tasks.sweep import NoSchedules, ScheduleWatch, Sweep, Sweeper
from loom_worker.tools.agent_tools import LaneWaker
from loom_worker.tools.files import Files
from loom_worker.tools.references import References, stores
from loom_worker.trace.collector import Collector
from loom_worker.trace.export import Exporter
from loom_worker.trace.flush import Flusher, NoTraces, TraceCall, TraceSweep
from loom_worker.trace.turn_spans import TurnTraces

log = logging.getLogger(__name__)

DAY_MS = 24 * 3600 * 1000
TIDY_PAUSE_S = 10.0
"""After a look that found no large result to remove. They are kept for an hour, and the look takes a third of the time
of a sweep that finds nothing."""


@dataclass(frozen=True, slots=True)
class TraceParts:
    """What the export of traces works with in a process; where no collector is set, nothing of it does anything."""

    settings: TraceSettings
    outbox: TraceOutbox
    spans: TurnTraces
    call: TraceCall

    @classmethod
    def of(cls, settings: Settings, database: Database, client: Any, dispatcher: CeleryDispatcher) -> "TraceParts":
        """Make them; nothing is connected yet."""
        call = TraceCall(client, dispatcher)
        return cls(settings.trace, TraceOutbox(database), TurnTraces(database, settings.trace.shows_content), call)

    def exporter(self, *, process: str, stopping: Stopping) -> Exporter:
        """What the task works with.

        Args:
            process: its name, as the service's instance.
        """
        resource = {"service.name": "loom", "service.version": __version__, "service.instance.id": process}
        collector = Collector(self.settings)
        return Exporter(self.outbox, self.spans, collector, self.settings, resource, stopping)

    def flusher(self) -> Flusher | NoTraces:
        """What turns tell of the spans that they add; not yet started."""
        return NoTraces() if self.settings.endpoint is None else Flusher(self.call)

    def sweep(self) -> TraceSweep | NoTraces:
        """What the sweep looks after."""
        if self.settings.endpoint is None:
            return NoTraces()
        return TraceSweep(self.outbox, self.call, self.spans)


@dataclass(frozen=True, slots=True)
class Links(LaneWaker):
    """The ways of a process to the database, to Redis and to other processes."""

    name: str
    """Name of the process; never used before."""
    database: Database
    client: Any
    """For questions that Redis answers at once; decodes responses."""
    lanes: Lanes
    events: EventLog
    dispatcher: CeleryDispatcher
    claims: Claims
    outbox: Outbox
    memories: Memories
    traces: TraceParts

    @classmethod
    def of(cls, settings: Settings, *, runs_tasks: bool = True, node: str = "") -> Self:
        """Make them; nothing is connected yet."""
        crash_points.arm(settings.crash_points, settings.home / "crashes")
        client = redis_of(settings)
        name, readers = process_name(node), settings.worker_concurrency
        database = Database.of(settings, readers=readers, process=name)
        celery = configure(settings, runs_tasks=runs_tasks)
        dispatcher = CeleryDispatcher(celery, WakeupQueue(celery, client), process_env.handed_on(settings))
        return cls(
            name,
            database,
            client,
            Lanes(client, settings.lanes),
            EventLog(redis_of(settings), settings.events),
            dispatcher,
            Claims(database),
            Outbox(database),
            Memories(database),
            TraceParts.of(settings, database, client, dispatcher),
        )

    def wake_waiting(self, lane: str) -> None:
        try:
            if self.lanes.alert(lane):
                self.dispatcher.wake(lane)
        except LoomError as error:
            log.warning("left to the sweep: %s", error)


class Rest:
    """A pause, by a clock that nobody sets."""

    def __init__(self) -> None:
        self._until_s = 0.0

    def begin(self, length_s: float) -> None:
        """From now on."""
        self._until_s = time.monotonic() + length_s

    def is_over(self) -> bool:
        """True before the first one, too."""
        return time.monotonic() >= self._until_s


@dataclass(frozen=True, slots=True)
class ExpiringStores:
    """What is kept for a time: large results, files, errors, turns of old sessions, users who are to be deleted."""

    references: References
    files: Files
    errors: AgentErrors
    messages: AgentMessages
    error_days: int
    retention: Retention
    users: UserDeletions
    rest: Rest = field(default_factory=Rest)
    """Pause of the look for large results that can go."""

    @classmethod
    def of(cls, settings: Settings, database: Database) -> Self:
        """Make them; nothing is connected yet."""
        client, connections = redis_of(settings), settings.web.threads + settings.worker_concurrency
        raw = redis_client.client(settings.redis_url, connections=connections, decodes=False)
        references = References(stores(settings.blobs, BlobRows(database), raw), settings.blobs)
        return cls(
            references,
            Files.of(settings, database, references),
            AgentErrors(database),
            AgentMessages(database),
            settings.tools.error_days,
            Retention(database, settings.retention),
            UserDeletions(database, Lanes(client, settings.lanes), EventLog(client, settings.events)),
        )

    def remove_expired(self, moment_ms: int) -> None:
        """Remove a little of what has expired by then; the sweep calls this every second."""
        if self.rest.is_over() and not self.references.tidy(moment_ms) + self.files.tidy(moment_ms):
            self.rest.begin(TIDY_PAUSE_S)
        kept_since_ms = moment_ms - self.error_days * DAY_MS
        self.errors.expire(before_ms=kept_since_ms)
        self.messages.settle(now_ms=moment_ms, kept_since_ms=kept_since_ms)
        self.retention.once(moment_ms)
        self.users.resume(moment_ms)


def sweeper(
    settings: Settings, links: Links, expiring: ExpiringStores, schedules: ScheduleWatch | None = None
) -> Sweeper:
    """The thread that sweeps, not yet started; None: it begins nothing by itself."""
    sweep = Sweep(
        links.client,
        links.lanes,
        links.events,
        links.claims,
        links.outbox,
        links.memories,
        Sessions(links.database),
        Runs(links.database),
        Budgets(links.database),
        links.dispatcher,
        expiring,
        settings.lanes,
        links.traces.sweep(),
        schedules=schedules or NoSchedules(),
    )
    return Sweeper(sweep, links.name)


def run_beat(settings: Settings) -> None:
    """Sweep, and send what Celery itself schedules, until SIGTERM.

    The scheduler in memory: Celery's default keeps its schedule in a pickled file, and what is scheduled is periodic
    anyway, so nothing is lost with it.
    """
    links = Links.of(settings, runs_tasks=False)
    thread = sweeper(settings, links, ExpiringStores.of(settings, links.database))
    metrics = MetricsFlusher(MetricValues(links.database))
    thread.start()
    metrics.start()
    signals.setup_logging.connect(keep_logging)
    try:
        beat = app.subclass_with_self("celery.apps.beat:Beat", install_sync_handler=stop_for_good)
        beat(scheduler="celery.beat:Scheduler", pidfile=None, loglevel=settings.log.level, quiet=True).run()
    finally:
        thread.stop()
        metrics.stop()
        links.database.close()


def stop_for_good(_: Any, service: Any) -> None:
    """In place of ``Beat.install_sync_handler``, whose handler only raises SystemExit.

    What a handler raises is lost if the signal comes while Python runs the callback of a weak reference, as it does at
    the end of each import; beat would then go on. The mark that the service is to end is looked at before each turn of
    its loop.
    """

    def stop(*_: object) -> None:
        service.stop()
        service.sync()
        raise SystemExit

    platforms.signals.update(SIGTERM=stop, SIGINT=stop)


def keep_logging(**_: object) -> None:
    """Celery sets no logging up where somebody answers this signal: the process has done it."""


def process_name(node: str = "") -> str:
    """Never used before; of a worker it begins with the name that lists and Flower have for it, ``worker-1@host``."""
    return f"{node and f'{node}@'}{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def redis_of(settings: Settings) -> Any:
    """A client for questions that are answered at once."""
    return redis_client.client(settings.redis_url, connections=settings.web.threads + settings.worker_concurrency)
