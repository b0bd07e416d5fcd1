"""Flower, Celery's monitor, behind a password."""

import logging
import signal
import sys
from types import FrameType

from flower.app import Flower
from flower.options import options
from flower.urls import settings as site
from flower.views import monitor
from tornado.web import authenticated

from loom_worker.core.settings import Settings
from loom_worker.tasks.app import app, configure

FLOWER_USER = "loom"
FLOWER_KEPT_TASKS = 5000
"""Tasks that Flower remembers; its own default of 100,000 costs hundreds of megabytes."""


class FlowerMetrics(monitor.Metrics):
    """Flower's ``/metrics`` for those who may see its pages; Flower itself answers it to everybody."""

    @authenticated
    async def get(self) -> None:
        """Answer 401 without the password."""
        await super().get()


def run_flower(settings: Settings, *, port: int, address: str, password: str) -> None:
    """Serve Flower until SIGTERM or SIGINT, behind basic auth (user ``loom``), remembering nothing on disk.

    Started through its classes and not its command: that one takes the password on a command line, which every
    user of the machine can read, and FLOWER_* variables, which could open what is closed here. Only ``/healthcheck``
    answers without the password (and Flower's own scripts and styles, which tell nothing of this Loom).

    Raises:
        SystemExit: 1, with one line that says why, if the address cannot be bound.
    """
    configure(settings, runs_tasks=False)
    options.port, options.address = port, address
    options.basic_auth = [f"{FLOWER_USER}:{password}"]
    options.max_tasks = FLOWER_KEPT_TASKS
    options.persistent = False
    flower = Flower(capp=app, options=options, **site)
    # These are asked before Flower's own.
    flower.add_handlers(".*", [("/metrics", FlowerMetrics)])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    try:
        flower.start_http_server()
    except OSError as error:
        raise SystemExit(f"loom flower: cannot listen on {address}:{port}: {error.strerror or error}") from error
    logging.getLogger(__name__).info("Flower listens on %s:%d, log level %s", address, port, settings.log.level)
    try:
        flower.start()
    finally:
        flower.stop()


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)
