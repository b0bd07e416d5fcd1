"""Tasks of the queue ``summary``."""

import logging

from loom_worker.core.errors import LoomError
from loom_worker.memory import compress
from loom_worker.tasks import worker
from loom_worker.tasks.app import app

log = logging.getLogger(__name__)


@app.task(name="loom.summary.compress")
def compress_memory(lane: str) -> None:
    """A session's L1 is full: its oldest messages become a summary; then those of other sessions that are due."""
    try:
        compress.serve(lane, worker.current().summaries)
    except LoomError as error:
        log.warning("the sweep will send it again: %s", error, extra={"lane": lane})
