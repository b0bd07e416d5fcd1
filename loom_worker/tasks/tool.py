"""Tasks of the queue ``tool``."""

import logging

from loom_worker.core.errors import LoomError
from loom_worker.tasks import worker
from loom_worker.tasks.app import app
from loom_worker.turn import entrypoints

log = logging.getLogger(__name__)


@app.task(name="loom.tool.call")
def call_tool(turn_id: str, position: int, send: int) -> None:
    """A chord's header: one tool call. It never raises, so that the chord always closes; a failure is a result."""
    try:
        entrypoints.serve_call(turn_id, position, send, worker.current().turns)
    except LoomError as error:
        # Without a stored result the turn sends the call again as soon as its lease has lapsed.
        log.warning("tool call without result: %s", error, extra={"turn": turn_id})
