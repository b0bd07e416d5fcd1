"""`loom stop`: end the supervisor from another terminal."""

import os
import signal
import time
from pathlib import Path

from loom_worker.errors import LoomError
from loom_worker.supervise import home


def stop(directory: Path, *, patience_s: float = 60.0) -> bool:
    """End the supervisor that runs on this home and wait for it; False if none runs.

    Raises:
        LoomError: it still runs after ``patience_s``.
    """
    state = home.running(directory)
    if state is None:
        return False
    os.kill(state.pid, signal.SIGTERM)
    give_up_at = time.monotonic() + patience_s
    while home.is_held(directory):
        if time.monotonic() > give_up_at:
            raise LoomError(f"Loom (pid {state.pid}) still runs after {patience_s:.0f} s; see {directory / home.LOGS}")
        time.sleep(0.1)
    return True
