"""What judging adds to a turn: the same question, to agents with and without judges in turn, on one running Loom."""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.load import HELLO
from bench.report import Report
from bench.scale import Scale
from bench.stats import percentile
from bench.system import OVER_HTTP, Running, System
from tests.support.messages_server import MessagesServer, Say
from tests.support.messages_wire import WireCall

LLM_S = 0.2
"""What a model takes, to answer and to judge."""
WARM = 5
SESSIONS = 20
RULE = {"type": "contains", "criteria": {"none": ["damn"]}}
FUNCTION = '''
def fine(answer: str) -> float:
    """Any answer is."""
    return 1.0
'''
PANELS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "plain": (),
    "1 rule": (RULE,),
    "3 rules": (RULE, RULE, RULE),
    "a function": ({"type": "python", "criteria": "judges.py:fine"},),
    "3 LLM judges": ({"criteria": "Is right."},) * 3,
}


def measure(report: Report, scale: Scale) -> None:
    """Turns one after the other; the model's own time is known, and taken off."""
    with (
        MessagesServer(script=_script, latency_s=LLM_S) as server,
        tempfile.TemporaryDirectory(prefix="loom-bench-agents-") as folder,
    ):
        (Path(folder) / "judges.py").write_text(FUNCTION, encoding="utf-8")
        for number, members in enumerate(PANELS.values()):
            agent = _agent(f"agent-{number}", members)
            (Path(folder) / f"{number}.yaml").write_text(json.dumps(agent), encoding="utf-8")  # JSON is YAML
        with System(**OVER_HTTP, ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=folder) as loom:
            _turns(loom, WARM)
            took = _turns(loom, scale.judged_turns)
    plain_ms = percentile(took["plain"], 50)
    report.add(f"a turn that nobody judges, a model of {LLM_S * 1000:g} ms, p50", plain_ms, "ms", model="HTTP server")
    for name, values in took.items():
        if name != "plain":
            own_ms = 1000 * LLM_S * ("LLM" in name)
            added_ms = percentile(values, 50) - plain_ms - own_ms
            without = ", without the model's own time" if own_ms else ""
            figure = f"added to a turn by {name}, p50{without}, expected < 30 ms"
            report.add(figure, added_ms, "ms", model="HTTP server")


def _turns(loom: Running, rounds: int) -> dict[str, list[float]]:
    """Milliseconds from submit to the end seen, by panel; in each round every panel has its turn."""
    client = loom.client()
    took: dict[str, list[float]] = {name: [] for name in PANELS}
    for n in range(rounds):
        for number, name in enumerate(PANELS):
            began_s = time.perf_counter()
            turn_id = client.submit(f"{number}-{n % SESSIONS}", HELLO, agent=f"agent-{number}")
            turn = client.wait(turn_id)
            took[name].append((time.perf_counter() - began_s) * 1000)
            assert (turn["judge"] or {}).get("passed") is (True if PANELS[name] else None), turn
    return took


def _agent(name: str, members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    judges = {"members": [{"name": f"judge {n}", **member} for n, member in enumerate(members)]}
    return {
        "agent": {
            "name": name,
            "system_prompt": "Answer.",
            "backend": False,
            "config": {"patterns": {"enabled": False}},
            **({"judges": judges} if members else {}),
        }
    }


def _script(body: dict[str, Any]) -> Say:
    if [tool["name"] for tool in body.get("tools", [])] == ["give_verdict"]:
        return Say("", [WireCall("toolu_verdict", "give_verdict", {"score": 1, "critique": ""})])
    return Say("I am an assistant.")
