"""Does a turn wait for the summary of what was said? Sessions with a summarizer that takes 2 s, and a quick one."""

import time
from dataclasses import dataclass
from typing import Any

from bench.kinds import prose
from bench.model import counted
from bench.report import Report
from bench.scale import Scale
from bench.stats import percentile
from bench.system import OVER_HTTP, System
from tests.support.messages_server import Behaviour, MessagesServer, Outgoing, Say

Json = dict[str, Any]

SUMMARY_S = 2.0
SESSIONS = 4
ANSWER_CHARS = 400


@dataclass(frozen=True)
class Late:
    """A reply that comes after a while."""

    behaviour: Behaviour
    after_s: float

    def send(self, out: Outgoing) -> None:
        """Wait, then send."""
        out.stopping.wait(self.after_s)
        self.behaviour.send(out)


def measure(report: Report, scale: Scale) -> None:
    """The same turns with both summarizers, by turns, so that what the machine does meanwhile falls on both."""
    ended_ms: dict[float, list[float]] = {}
    summaries = 0
    for summary_s in (0.0, SUMMARY_S):
        asked: list[float] = []
        with (
            MessagesServer(script=_script(summary_s, asked), count=counted) as server,
            System(**OVER_HTTP, ANTHROPIC_BASE_URL=server.url) as loom,
        ):
            ended_ms[summary_s] = _turns(loom, scale.summary_turns)
        summaries = len(asked)
    fast, slow = (percentile(ended_ms[summary_s], 50) for summary_s in (0.0, SUMMARY_S))
    report.add("turn, summaries at once: submit to end seen, p50", fast, "ms", model="HTTP server")
    report.add("turn, summaries after 2 s: submit to end seen, p50", slow, "ms", model="HTTP server", calls=summaries)
    p95 = percentile(ended_ms[SUMMARY_S], 95)
    report.add("turn, summaries after 2 s: submit to end seen, p95", p95, "ms", model="HTTP server")
    report.add("turn, summaries after 2 s to at once, p50", slow / fast, "times", model="HTTP server")


def _turns(loom: System, turns: int) -> list[float]:
    client = loom.client()
    ended = []
    for n in range(turns):
        began_s = time.perf_counter()
        client.wait(client.submit(f"talk-{n % SESSIONS}", prose(n, ANSWER_CHARS)))
        ended.append((time.perf_counter() - began_s) * 1000)
    return ended


def _script(summary_s: float, asked: list[float]) -> Any:
    def answer(body: Json) -> Behaviour:
        if "tools" in body:
            return Say(prose(len(body["messages"]), ANSWER_CHARS))
        asked.append(summary_s)
        return Late(Say(prose(1, ANSWER_CHARS)), summary_s)

    return answer
