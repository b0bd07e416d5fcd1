"""Flower, Celery's monitor, behind a password."""

import logging
import signal
from typing import Any

from flower.api.tasks import GetQueueLengths
from flower.app import Flower
from flower.events import EventsState
from flower.inspector import Inspector
from flower.options import options
from flower.urls import settings as site
from flower.views import BaseHandler, monitor
from flower.views.broker import BrokerView
from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule
from tornado.web import authenticated

from loom_worker.core.settings_tree import FlowerSettings, Settings
from loom_worker.core.values.json import Json
from loom_worker.tasks.app import QUEUES, app, broker_url, configure

FLOWER_USER = "loom"
FLOWER_KEPT_TASKS = 5000
"""Tasks that Flower remembers; its own default of 100,000 costs hundreds of megabytes."""
COLUMNS = "name,uuid,state,args,result,exception,received,runtime,worker"
"""Columns of the page of tasks; Flower's own leave out whose a task is and what became of it."""
READ_ONLY = "This Flower only shows: LOOM_FLOWER_CONTROL=1 lets its password control workers and tasks.\n"


class FlowerMetrics(monitor.Metrics):
    """Flower's ``/metrics`` for those who may see its pages; Flower itself answers it to everybody."""

    @authenticated
    async def get(self) -> None:
        """Answer 401 without the password."""
        await super().get()


class AllQueues(BrokerView):
    """Flower's page of queues, with all of them; its own has those that a worker told it of."""

    def get_active_queue_names(self) -> list[str]:
        """Every queue there is."""
        return list(QUEUES)


class AllQueueLengths(GetQueueLengths):
    """The same for programs."""

    def get_active_queue_names(self) -> list[str]:
        """Every queue there is."""
        return list(QUEUES)


class Changes(Matcher):
    """Requests that do more than ask; the page of tasks asks for its rows by POST."""

    def match(self, request: HTTPServerRequest) -> Json | None:
        """What tornado asks of a matcher: a dict if it matches."""
        asks = request.method in ("GET", "HEAD", "OPTIONS")
        return None if asks or (request.method, request.path) == ("POST", "/tasks/datatable") else {}


class ControlRefused(BaseHandler):
    """Answers requests that would change something; without the password 401, as everywhere."""

    @authenticated
    async def post(self) -> None:
        """Say which setting allows it."""
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        await self.finish(READ_ONLY)

    put = patch = delete = post


class LoomState(EventsState):
    """What Flower knows, with reports in the order of who was last at work, and with every worker looked at.

    Workers send their reports a few times a second, each in its own time. So what a turn's former worker says can come
    after what the next one said, and must not take its place.
    """

    def __init__(self, flower: Flower, **limits: int) -> None:
        super().__init__(**limits)
        self._flower = flower

    def event(self, event: Json) -> None:
        """Take an event, unless a newer one of its task is known."""
        if event["type"].startswith("task-"):
            known, entry = self.tasks.data.get(event["uuid"]), event.get("entry", 0)
            before = getattr(known, "entry", entry)
            if entry < before:
                return
            if entry > before:
                known.state = "PENDING"  # else what has failed or was revoked could not be begun again
        super().event(event)
        self._look_at(event)

    def _look_at(self, event: Json) -> None:
        """Ask a worker for its queues and the like until all is known; Flower asks once, before most have started."""
        kind, name = event["type"], event["hostname"]
        if kind == "worker-online":
            self._flower.workers.pop(name, None)  # of its predecessor; it cannot answer yet
        elif kind == "worker-heartbeat":
            known = self._flower.workers.get(name, ())
            if not all(method in known for method in Inspector.inspect_methods):
                self._flower.update_workers(name)


class LinkedFlower(Flower):
    """A Flower whose links lead somewhere: what is no task, as a message or a forgotten turn, to the list of tasks."""

    def reverse_url(self, name: str, *args: Any) -> str:
        """The address of a page, by the name of its rule."""
        is_known = name != "task" or args[0] in self.events.state.tasks
        url: str = super().reverse_url(name, *args) if is_known else super().reverse_url("tasks")
        return url


def run_flower(settings: Settings, *, password: str) -> None:
    """Serve Flower until SIGTERM or SIGINT, behind basic auth (user ``loom``), remembering nothing on disk.

    Started through its classes and not its command: that one takes the password on a command line, which every user of
    the machine can read, and FLOWER_* variables, which could open what is closed here. Only ``/healthcheck`` answers
    without the password (and Flower's own scripts and styles, which tell nothing of this Loom); with it everything can
    be read, and nothing changed unless a setting says so. SystemExit: 1, with one line that says why, if the address
    cannot be bound.
    """
    configure(settings, runs_tasks=False)
    flower = _flower(settings.flower, password)
    flower.broker_uri_with_password = broker_url(settings)  # for the lengths of queues; no page shows it
    # By the loop, between two of its callbacks: an exception out of a signal's handler can get lost in a finalizer.
    for number in (signal.SIGTERM, signal.SIGINT):
        flower.io_loop.asyncio_loop.add_signal_handler(number, flower.io_loop.stop)
    port, address = settings.flower.port, settings.flower.address
    try:
        flower.start_http_server()
    except OSError as error:
        raise SystemExit(f"loom flower: cannot listen on {address}:{port}: {error.strerror or error}") from error
    logging.getLogger(__name__).info("Flower listens on %s:%d, log level %s", address, port, settings.log.level)
    try:
        flower.start()
    finally:
        flower.stop()


def _flower(own: FlowerSettings, password: str) -> Flower:
    options.port, options.address = own.port, own.address
    options.basic_auth = [f"{FLOWER_USER}:{password}"]
    options.read_only = not own.may_control
    options.tasks_columns = COLUMNS
    options.max_tasks = FLOWER_KEPT_TASKS
    options.persistent = False
    flower = LinkedFlower(capp=app, options=options, **site)
    flower.events.state = LoomState(
        flower, max_tasks_in_memory=FLOWER_KEPT_TASKS, max_workers_in_memory=options.max_workers
    )
    handlers: list[Any] = [
        ("/metrics", FlowerMetrics),
        ("/broker", AllQueues),
        ("/api/queues/length", AllQueueLengths),
    ]
    if not own.may_control:
        handlers.insert(0, Rule(Changes(), ControlRefused))
    flower.add_handlers(".*", handlers)  # these are asked before Flower's own
    return flower
