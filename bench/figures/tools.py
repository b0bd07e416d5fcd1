"""Tools of a user's own, from one Python file: side by side, many short ones, and a result too large to be sent."""

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.load import burst
from bench.model import model_server, question
from bench.report import Report
from bench.scale import Scale
from bench.system import Running, System
from tests.support.until import until

CODE = '''
import time

from loom_worker.tools.declare import tool

ROWS = [{"id": n, "customer": f"Customer {n % 977}", "product": f"Product {n % 53} of the shop, in blue, boxed",
         "amount": n * 3, "ordered_on": "2025-06-01"} for n in range(10_000)]


@tool(read_only=True)
def pause(nonce: str, seconds: float) -> str:
    """Wait."""
    time.sleep(seconds)
    return nonce


@tool(read_only=True)
def note(nonce: str) -> str:
    """Say it again."""
    return nonce


@tool(read_only=True)
def table(nonce: str) -> list[dict[str, object]]:
    """10,000 rows."""
    return ROWS
'''
AGENT = {
    "agent": {
        "name": "default",
        "system_prompt": "Answer.",
        "backend": False,
        "tools": ["measured.py"],
        "config": {"patterns": {"enabled": False}},
    }
}
SECONDS = 1.0
CALLS, SESSIONS = 10, 10
"""Of the short tools: calls a reply, and sessions that ask for them at the same time."""
SHARES = (50, 95)
READY_S = 60.0
_DUE = "SELECT 1 FROM memory WHERE due_ms IS NOT NULL"


def measure(report: Report, scale: Scale) -> None:
    """Whole turns of two replies, as a client sees them; the first reply asks for all of the tools."""
    with model_server() as server, tempfile.TemporaryDirectory(prefix="loom-bench-agents-") as folder:
        (Path(folder) / "measured.py").write_text(CODE)
        (Path(folder) / "default.yaml").write_text(json.dumps(AGENT))  # JSON is YAML
        with System(**server.environ, LOOM_AGENTS_DIR=folder) as loom:
            _many(loom, 40, "warm", first=0)
            until(lambda: not loom.rows(_DUE), READY_S, "the summaries of that are written")
            _turns(report, loom, ["note"], "one short tool: the whole turn, expected 500 ms", scale)
            for calls in (3, 5):
                name = f"{calls} tools of {SECONDS:g} s in one reply: the whole turn"
                expected = ", expected 1,600 ms" if calls == 3 else ""
                _turns(report, loom, [f"pause:{SECONDS}"] * calls, name + expected, scale)
            _turns(report, loom, ["table"], "10,000 rows, kept by reference: the whole turn", scale)
            per_s = _many(loom, 10 * scale.tool_turns, "short", first=50_000)
            name = f"short tools, {CALLS} a reply, {SESSIONS} sessions at a time, expected 100 a second"
            report.add(name, per_s, "calls/s", model="HTTP server")


def _turns(report: Report, loom: Running, tools: Sequence[str], name: str, scale: Scale) -> None:
    """One turn after the other, each in a session of its own."""
    client, directive = loom.client(), "tools=" + ",".join(tools)
    took_ms = []
    first = 1000 * len(tools) + 10_000 * len(tools[0])
    for n in range(scale.tool_turns):
        began_s = time.perf_counter()
        turn = client.wait(
            client.submit(f"{tools[0].partition(':')[0]}-{len(tools)}-{n}", question(first + n, directive))
        )
        took_ms.append((time.perf_counter() - began_s) * 1000)
        assert [call["status"] for call in turn["tool_calls"]] == ["completed"] * len(tools), turn
    report.shares(name, took_ms, "ms", shares=SHARES, model="HTTP server")


def _many(loom: Running, turns: int, prefix: str, *, first: int) -> float:
    """Calls a second, from the first submit to the last end."""
    directive = "tools=" + ",".join(["note"] * CALLS)
    done = burst(loom, turns, sessions=SESSIONS, prefix=prefix, ask=lambda n: question(first + n, directive))
    return done.per_s * CALLS
