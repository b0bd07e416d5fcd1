"""Tools that run side by side: three of a second each shall take one second."""

import sys
import tempfile
import time

from bench.crew import Crew
from bench.model import model_server, question
from bench.report import Report
from bench.scale import Scale
from tests.chaos import equipment

WITH_PAUSE = (sys.executable, "-m", "tests.chaos.process")
"""A `loom` whose agents have a tool that waits."""
CALLS, SECONDS = 3, 1.0


def measure(report: Report, scale: Scale) -> None:
    """A turn of two replies; the first one asks for all of the tools."""
    directive = "tools=" + ",".join([f"pause:{SECONDS}"] * CALLS)
    with model_server() as server, tempfile.NamedTemporaryFile() as effects:
        environ = {**server.environ, equipment.EFFECTS: effects.name}
        with Crew(entry=WITH_PAUSE, **environ) as loom:
            client = loom.client()
            for n in range(10):
                client.wait(client.submit(f"warm-{n}", question(n, "tools=note,note")))
            beyond_ms = []
            for n in range(scale.tool_turns):
                began_s = time.perf_counter()
                client.wait(client.submit(f"tools-{n}", question(100 + n, directive)))
                beyond_ms.append((time.perf_counter() - began_s - SECONDS) * 1000)
    name = f"{CALLS} tools of {SECONDS:g} s in one reply: the whole turn beyond {SECONDS:g} s"
    report.shares(name, beyond_ms, "ms", shares=(50, 95), model="HTTP server")
