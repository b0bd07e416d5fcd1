"""What a turn costs in a session that has said little, and in one that has said much."""

from bench.load import HELLO, latencies, warm_up
from bench.past import MESSAGES_A_TURN, lengthen
from bench.processes import cpu_ms_by_kind
from bench.report import Report
from bench.scale import Scale
from bench.stats import percentile
from bench.system import SCRIPTED, System
from tests.support.until import until

LENGTHS = (10, 1000, 10_000)
SESSIONS = {10: 30, 1000: 2, 10_000: 2}
"""Of each length: a short session is soon not short any more."""
SETTLE_S = 120.0
_DUE = "SELECT 1 FROM memory WHERE due_ms IS NOT NULL"
ROUNDS = 2
"""All lengths once, and again: what the machine does meanwhile falls on all of them."""


def measure(report: Report, scale: Scale) -> None:
    """One turn after the other: its latency and its processor time, at each length."""
    ended_ms: dict[int, list[float]] = {length: [] for length in LENGTHS}
    cpu_ms: dict[int, float] = dict.fromkeys(LENGTHS, 0.0)
    with System(**SCRIPTED) as loom:
        warm_up(loom)
        for length in LENGTHS:
            _make(loom, length)
        for _ in range(ROUNDS):
            for length in LENGTHS:
                before = sum(cpu_ms_by_kind(loom.home).values())
                prefix, sessions = f"long-{length}", SESSIONS[length]
                ended_ms[length] += latencies(loom, scale.history_turns, sessions=sessions, prefix=prefix)[1]
                cpu_ms[length] += sum(cpu_ms_by_kind(loom.home).values()) - before
    _tell(report, ended_ms, {length: cpu_ms[length] / len(ended_ms[length]) for length in LENGTHS})


def _tell(report: Report, ended_ms: dict[int, list[float]], cpu_ms: dict[int, float]) -> None:
    p50_ms = {length: percentile(ended_ms[length], 50) for length in LENGTHS}
    for length in LENGTHS:
        name = f"a turn behind {length} messages"
        report.add(f"{name}: submit to end seen, p50", p50_ms[length], "ms", model="scripted")
        report.add(f"{name}: CPU, all processes", cpu_ms[length], "ms", model="scripted")
    first, last = LENGTHS[0], LENGTHS[-1]
    for what, values in (("latency", p50_ms), ("CPU", cpu_ms)):
        name = f"a turn behind {last} messages to one behind {first}: {what}"
        report.add(name, values[last] / values[first], "times", model="scripted")


def _make(loom: System, length: int) -> None:
    client = loom.client()
    for n in range(SESSIONS[length]):
        session = f"long-{length}-{n}"
        turn_id = client.submit(session, HELLO)
        client.wait(turn_id)
        lengthen(loom.home, turn_id, length // MESSAGES_A_TURN - 1)
        client.wait(client.submit(session, HELLO))
        until(lambda: not loom.rows(_DUE), SETTLE_S, "what was said long ago is compressed")
        for _ in range(2):  # each worker counts the tokens of a text when it first meets it
            client.wait(client.submit(session, HELLO))
