"""How much of each request the provider's prefix cache has from the request before, and the money that saves.

A person's session: each question comes when the compression that the turn before called for is over. Calls whose memory
was compressed since the call before are kept apart: behind the system text nothing of theirs can be known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from bench.kinds import prose
from bench.prefix import PrefixCache, request_blocks, shared
from bench.report import Report
from bench.scale import Scale
from bench.system import OVER_HTTP, System
from loom_worker.core.values.chat import Usage
from loom_worker.llm import prices, tokens
from tests.support.memory_block import MEMORY
from tests.support.messages_server import Behaviour, MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.until import until

Json = dict[str, Any]

TURNS = 50
TOOLS_EVERY = 3
"""Every third turn looks at the tables, then queries, then answers."""
QUERY = "SELECT * FROM products LIMIT 10"
QUESTION_CHARS, ANSWER_CHARS = 200, 800
SESSION = "cached"
MUCH = 0.9


SETTLE_S = 10.0
"""Longest wait for a compression."""
DUE = "SELECT 1 FROM memory WHERE due_ms IS NOT NULL"


@dataclass(frozen=True)
class Calls:
    """What the calls of one session shared with the calls before them, and what they cost."""

    steady: list[float]
    """Shares of calls whose memory is that of the call before."""
    kept: list[float]
    """Of the same calls: how much of the call before came again as it was, as a share of that one."""
    compressed: list[float]
    """Shares of calls whose memory was compressed since the call before."""
    cached: Usage
    plain: Usage


def measure(report: Report, _scale: Scale) -> None:
    """One session of 50 turns; every third calls tools."""
    with MessagesServer(script=script) as server:
        with System(**OVER_HTTP, ANTHROPIC_BASE_URL=server.url) as loom:
            client = loom.client()
            for n in range(TURNS):
                client.wait(client.submit(SESSION, f"{n} {prose(n, QUESTION_CHARS)}"))
                until(lambda: not loom.rows(DUE), SETTLE_S, "memory is compressed")
        bodies = [body for body in server.requests if "tools" in body]  # a summary is asked for without
    _tell(report, calls_of(bodies), model=bodies[0]["model"])


def script(body: Json) -> Behaviour:
    """A model: a turn whose number divides by three asks for the tables, then for rows, then answers."""
    if "tools" not in body:
        return Say(prose(len(str(body)), ANSWER_CHARS))
    said = [(m["role"], block) for m in body["messages"] for block in m["content"]]
    asked = [n for n, (role, block) in enumerate(said) if role == "user" and block["type"] == "text"][-1]
    number = int(said[asked][1]["text"].split()[0])
    results = sum(block["type"] == "tool_result" for _, block in said[asked:])
    if number % TOOLS_EVERY == 0 and results < 2:
        wanted = ("execute_sql", {"sql": QUERY}) if results else ("list_tables", {})
        return Say("I look.", calls=(WireCall(f"toolu_{number}_{results}", *wanted),))
    return Say(prose(1000 + number, ANSWER_CHARS))


def calls_of(bodies: Sequence[Json]) -> Calls:
    """Compare each request with the one before, and bill all of them with and without a cache."""
    model = bodies[0]["model"]
    laid = [request_blocks(body, _counting(model)) for body in bodies]
    pairs = [
        (shared(before, after), shared(before, after, of=before), _memory(bodies[n]) == _memory(bodies[n + 1]))
        for n, (before, after) in enumerate(pairwise(laid))
    ]
    cache = PrefixCache()
    bills = [cache.ask(blocks) for blocks in laid]
    return Calls(
        steady=[share for share, _, is_same in pairs if is_same],
        kept=[kept for _, kept, is_same in pairs if is_same],
        compressed=[share for share, _, is_same in pairs if not is_same],
        cached=sum(bills, Usage()),
        plain=Usage(input_tokens=sum(bill.sent_tokens for bill in bills)),
    )


def _memory(body: Json) -> list[str]:
    first = body["messages"][0]["content"]
    return [block["text"] for block in first if block["type"] == "text" and block["text"].startswith(MEMORY)]


def _tell(report: Report, calls: Calls, *, model: str) -> None:
    where = f"of {TURNS} turns"
    of_it, of_former = "tokens of a call that are a prefix of the one before", "tokens of a call that the next repeats"
    for what, shares in ((of_it, calls.steady), (of_former, calls.kept), (f"{of_it}, compressed", calls.compressed)):
        if shares:
            ordered = sorted(shares)
            report.add(f"{what}: least", 100 * ordered[0], "%", model="HTTP server", calls=len(shares))
            report.add(f"{what}: median", 100 * ordered[len(shares) // 2], "%", model="HTTP server", calls=len(shares))
    many = sum(share >= MUCH for share in calls.steady) / len(calls.steady)
    report.add(f"calls with {MUCH:.0%} or more of such a prefix, compressed ones apart", 100 * many, "%")
    cached, plain = (prices.cost_usd(model, usage) for usage in (calls.cached, calls.plain))
    if cached is None or plain is None:
        raise SystemExit(f"there is no list price for {model}")
    report.add(f"input of a session {where}, {model}, without a cache", plain, "USD", model="HTTP server")
    report.add(f"input of a session {where}, {model}, by the marks", cached, "USD", model="HTTP server")
    report.add(f"saved by the marks, {where}", 100 * (1 - cached / plain), "%", model="HTTP server")


def _counting(model: str) -> Any:
    ratio = tokens.typical(model)
    return lru_cache(None)(lambda text: tokens.count(text, model) * ratio)
