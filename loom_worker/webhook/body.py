"""The body of a webhook: the turn, cut so that every receiver's limit and parser takes it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from loom_worker.core.values.cutting import dump, entries, fit, items, size_bytes, text
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.judges import shortened
from loom_worker.core.values.runs import Run
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.webhooks import WebhookFormat

LIMIT_BYTES = 20_000
"""A body stays below it. Standard Webhooks 1.0.0, Payload size."""
_ENVELOPE_BYTES = 200
"""Kept free for ``type``, ``timestamp``, ``truncated`` and what holds them together."""


class TurnBody(Protocol):
    """Writes what webhooks of another format say of a turn (``fronts/a2a/push.py``: PushBody)."""

    def of(self, turn: Turn) -> str:
        """The JSON text about a turn as it is now, below LIMIT_BYTES."""


@dataclass(frozen=True, slots=True)
class WebhookBodies:
    """Writes the bodies of this installation's webhooks."""

    base_url: str
    """Where its web API is reached, without a slash at the end."""
    clock_ms: Callable[[], int] = now_ms
    others: Mapping[WebhookFormat, TurnBody] = field(default_factory=dict)
    """Who writes bodies of other formats than Loom's."""

    def of(self, turn: Turn) -> str:
        """The body about a turn as it is now, in the format of its webhook; see completed."""
        other = self.others.get(turn.webhook.format) if turn.webhook else None
        if other is not None:
            return other.of(turn)
        return completed(turn, now_ms=self.clock_ms(), url=f"{self.base_url}/v1/turns/{turn.id}")

    def of_run(self, run: Run) -> str:
        """The body about a run that has ended; see run_ended."""
        return run_ended(run, now_ms=self.clock_ms(), url=f"{self.base_url}/v1/runs/{run.id}")


def completed(turn: Turn, *, now_ms: int, url: str) -> str:
    """Return the JSON text that says how a turn ended: below 20 kB, without lone surrogates or NaN.

    What does not fit is cut, the least missed first: the answer as messages, tool calls, verdicts of judges, patterns,
    metadata, the question, the error, and the answer last. Then ``data`` has ``truncated: true`` and the ``url`` at
    which the whole turn can be read.
    """
    event: Json = {"type": f"turn.{turn.status}", "timestamp": rfc3339(now_ms), "data": _clean(turn.as_json())}
    whole = dump(event)
    if size_bytes(whole) < LIMIT_BYTES:
        return whole
    return dump({**event, "data": _cut(event["data"], url)})


def run_ended(run: Run, *, now_ms: int, url: str) -> str:
    """Return the JSON text that says how a run ended, as of a turn; what does not fit is cut likewise.

    The stages go first, then variables and metadata, and the merged output last.
    """
    event: Json = {"type": f"run.{run.status}", "timestamp": rfc3339(now_ms), "data": _clean(run.as_json())}
    whole = dump(event)
    if size_bytes(whole) < LIMIT_BYTES:
        return whole
    data, room = {**event["data"], "truncated": True, "url": url}, LIMIT_BYTES - _ENVELOPE_BYTES
    for name, (budget, shorten) in _RUN_BUDGETS.items():
        if size_bytes(dump(data)) > room:
            data[name] = fit(data[name], budget, shorten)
    rest = size_bytes(dump({**data, "merged_output": ""}))
    return dump({**event, "data": {**data, "merged_output": fit(data["merged_output"], room - rest, text)}})


def _results(results: list[Json], budget: int) -> list[Json]:
    return items([{**each, "output_text": fit(each["output_text"], 300, text)} for each in results], budget)


def _clean(value: Json) -> Json:
    """The same as a JSON parser would give it back, with null for NaN and infinities, which JSON has not."""
    cleaned: Json = json.loads(json.dumps(value), parse_constant=lambda _: None)
    return cleaned


def _cut(data: Json, url: str) -> Json:
    room = LIMIT_BYTES - _ENVELOPE_BYTES
    data = {**data, "truncated": True, "url": url}
    for name, (budget, shorten) in _BUDGETS.items():
        if size_bytes(dump(data)) <= room:
            return data
        data[name] = fit(data[name], budget, shorten)
    rest = size_bytes(dump({**data, "output_text": ""}))
    data["output_text"] = fit(data["output_text"], room - rest, text)
    return data


def _calls(calls: list[Json], budget: int) -> list[Json]:
    return items([_slim(call) for call in calls], budget)


def _slim(call: Json) -> Json:
    return {
        **call,
        "arguments": fit(call["arguments"], 300, entries),
        "content": fit(call["content"], 300, text),
    }


_BUDGETS: dict[str, tuple[int, Callable[[Any, int], Any]]] = {
    "output_parsed": (500, lambda _value, _most_bytes: None),
    "output_parts": (500, items),
    "tool_calls": (3_000, _calls),
    "judge": (1_500, shortened),
    "patterns": (500, items),
    "metadata": (1_500, entries),
    "input": (2_000, lambda given, budget: (items if isinstance(given, list) else text)(given, budget)),
    "error": (1_500, entries),
    "session_id": (1_000, text),
    "reason": (500, text),
    "trace_id": (500, text),
    "retry_of": (500, text),
    **dict.fromkeys(("agent", "model", "user"), (500, text)),
    "budget": (500, entries),
}
"""Bytes of each field once something has to give, in that order; the answer has what is left, 5 kB at the least."""
_RUN_BUDGETS: dict[str, tuple[int, Callable[[Any, int], Any]]] = {
    "stages": (2_000, _results),
    "agent_results": (3_000, _results),
    "cost": (1_500, entries),
    "variables": (1_500, entries),
    "metadata": (1_500, entries),
    "error": (1_500, entries),
}
"""Likewise, of a run."""
