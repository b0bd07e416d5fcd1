"""Tasks of the queue ``turn``."""

import logging

from loom_worker.core import crash_points
from loom_worker.core.errors import Unavailable
from loom_worker.tasks import worker
from loom_worker.tasks.app import app
from loom_worker.turn import entrypoints

log = logging.getLogger(__name__)


@app.task(name="loom.turn.run")
def run_turn(lane: str) -> None:
    """A wake-up: run the lane's next turn, or go on with a parked one; ringing twice does nothing twice."""
    crash_points.reached("turn.received")
    try:
        entrypoints.serve_lane(lane, worker.current().turns)
    except Unavailable as error:
        log.warning("the sweep will ring again: %s", error, extra={"lane": lane})


@app.task(name="loom.turn.wake")
def wake(lane: str, ticket: str) -> None:
    """The body of a chord: all its tool calls have a result, so the turn goes on."""
    crash_points.reached("turn.waking")
    try:
        entrypoints.serve_wake(lane, ticket, worker.current().turns)
    except Unavailable as error:
        log.warning("the sweep will ring: %s", error, extra={"lane": lane})
