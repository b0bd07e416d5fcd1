"""A session of 1,200 turns with tools through the whole system: does it stay as fast, as small, and does it forget?"""

import re
import time
from collections.abc import Sequence
from typing import Any

from bench.kinds import prose
from bench.model import counted
from bench.processes import processes, pss_mib
from bench.report import Report
from bench.scale import Scale
from bench.stats import percentile
from bench.system import OVER_HTTP, System
from tests.support.messages_server import Behaviour, MessagesServer, Say
from tests.support.messages_wire import WireCall

Json = dict[str, Any]

SESSION = "long"
TOOLS_EVERY = 3
"""Every third turn queries before it answers."""
QUERY = "SELECT * FROM products LIMIT 10"
ANSWER_CHARS = 500
FACTS = (
    ("Ottilie Brandt", "Ottilie Brandt approves every invoice above 4,250 euros"),
    ("Rotterdam", "the spare pallets are kept in hall 7 in Rotterdam"),
    ("XK-4471", "part XK-4471 must never be shipped by air"),
    ("Thursday", "the supplier calls are on Thursday at a quarter to nine"),
    ("marmalade", "the gift for new customers is a jar of marmalade"),
)
"""What is said in the first turns, and what to look for it by at the end."""
QUESTIONS = (
    "Who approves invoices above 4,250 euros?",
    "Where are the spare pallets?",
    "Which part must not go by air?",
    "When are the supplier calls?",
    "What gift do new customers get?",
)


def measure(report: Report, scale: Scale) -> None:
    """One turn after the other; at the end the facts of the beginning are searched for."""
    turns = scale.long_turns
    with (
        MessagesServer(script=script, count=counted) as server,
        System(**OVER_HTTP, ANTHROPIC_BASE_URL=server.url) as loom,
    ):
        client, ended_ms, sent, used_mib = loom.client(), [], [], []
        for n in range(turns):
            began_s = time.perf_counter()
            turn = client.wait(client.submit(SESSION, _text(n)))
            ended_ms.append((time.perf_counter() - began_s) * 1000)
            sent.append(turn["usage"]["input_tokens"] / turn["usage"]["llm_calls"])
            if n in (turns // 6, turns - 1):
                used_mib.append(pss_mib(pid for pid, kind in processes(loom.home).items() if "worker" in kind))
        found = sum(_is_found(client, fact, question) for (fact, _), question in zip(FACTS, QUESTIONS, strict=True))
        _, context = client.get(f"/v1/sessions/{SESSION}/context")
        _, metrics = client.get(f"/v1/sessions/{SESSION}/snapshots?limit=500")
    _tell(report, ended_ms, sent)
    report.add(f"memory of the workers, turn {turns} to turn {turns // 6}", used_mib[1] / used_mib[0], "times")
    report.add(f"facts of the first turns found after {turns}", found, f"of {len(FACTS)}")
    report.add(f"context after {turns} turns, of the input budget", 100 * _share(context), "%")
    report.add(f"snapshots after {turns} turns", len(metrics["data"]), "")


def script(body: Json) -> Behaviour:
    """A model: every third question is answered from rows; a summary repeats the names and numbers it read."""
    if "tools" not in body:
        text = body["messages"][0]["content"][0]["text"]
        return Say("Noted: " + " ".join(dict.fromkeys(re.findall(r"\b[A-Z]\w+|\d+", text)))[:ANSWER_CHARS])
    last = body["messages"][-1]["content"][-1]
    if last["type"] == "tool_result":
        return Say(prose(len(str(last)), ANSWER_CHARS))
    number = int(last["text"].split()[0])
    if number % TOOLS_EVERY == 0:
        return Say("I look.", calls=(WireCall(f"toolu_{number}", "execute_sql", {"sql": QUERY}),))
    return Say(prose(number, ANSWER_CHARS))


def _text(n: int) -> str:
    said = FACTS[n][1] if n < len(FACTS) else prose(2 * n, 120)
    return f"{n} {said}"


def _is_found(client: Any, fact: str, question: str) -> bool:
    path = f"/v1/sessions/{SESSION}/search?limit=10&q={question.replace(' ', '%20').replace('?', '')}"
    return any(fact in hit["snippet"] for hit in client.get(path)[1]["data"])


def _share(context: Json) -> float:
    return float(context["used_tokens"] / context["input_budget_tokens"])


def _tell(report: Report, ended_ms: Sequence[float], sent: Sequence[float]) -> None:
    """Compare the last hundred turns with an early hundred, when everything is warm."""
    width = max(1, len(ended_ms) // 12)
    early, late = slice(width, 2 * width), slice(-width, None)
    names = [f"turns {width + 1} to {2 * width}", f"the last {width}"]
    for what, values, unit in (("submit to end seen", ended_ms, "ms"), ("input tokens a call", sent, "tokens")):
        middles = [percentile(values[part], 50) for part in (early, late)]
        for name, middle in zip(names, middles, strict=True):
            report.add(f"{name} of {len(values)}: {what}, p50", middle, unit, model="HTTP server")
        report.add(f"{names[1]} to {names[0]}: {what}", middles[1] / middles[0], "times", model="HTTP server")
