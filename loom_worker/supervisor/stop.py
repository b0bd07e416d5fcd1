"""`loom stop`: end the supervisor from another terminal."""

import contextlib
import os
import signal
import time
from pathlib import Path

from loom_worker.core.errors import LoomError
from loom_worker.supervisor import home


def stop(directory: Path, *, patience_s: float = 60.0) -> bool:
    """End the supervisor that runs on this home and wait for it; False if none runs.

    Raises:
        LoomError: it still runs after ``patience_s``.
    """
    give_up_at = time.monotonic() + patience_s
    asked: int | None = None
    was_held = False
    while home.is_held(directory):
        was_held = True
        # One that only just starts has not yet said who it is.
        if asked is None and (state := home.running(directory)):
            asked = state.pid
            with contextlib.suppress(ProcessLookupError):  # it ended by itself just now
                os.kill(asked, signal.SIGTERM)
        if time.monotonic() > give_up_at:
            raise LoomError(f"Loom (pid {asked}) still runs after {patience_s:.0f} s; see {directory / home.LOGS}")
        time.sleep(0.1)
    return was_held
