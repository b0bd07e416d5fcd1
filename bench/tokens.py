"""Measure the counting of tokens: `python -m bench.tokens`, with LOOM_TEST_DATA.

How far what Loom counts is from what the provider counted, over recorded requests with the usage that came back: the
bound that budgets are judged by, the usual estimate of a session that has no reply yet, and what is shown after a
reply, when its usage has corrected the counting.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolSpec, ToolUse
from loom_worker.llm import tokens
from loom_worker.memory.layers import (
    REQUEST_OVERHEAD_TOKENS,
    chat_tokens,
    corrected,
    correction,
    tools_tokens,
    usual_tokens,
)

Json = dict[str, Any]

UNCOUNTED = {
    "an image, a document or search results": re.compile(r'"type": "(?:image|document|search_result)"'),
    "an answer by a schema: the provider adds a text of its own": re.compile('"output_(?:config|format)"'),
    "a tool of the provider's own": re.compile(r'"type": "[a-z_]+_20\d{6}"|mcp_servers|"defer_loading": true'),
    "a tool that is forced": re.compile('"tool_choice": {[^}]*"type": "(?:any|tool)"'),
    "a conversation that the provider cuts": re.compile('"context_management"|"type": "compaction"'),
    "adaptive thinking": re.compile('"type": "adaptive"'),
}
"""What Loom never sends and so does not count, by what tells it in a request."""
THINKING_TOKENS = 29
"""What Anthropic adds to a request that asks for thinking, which Loom's do not."""
LONG_TOKENS = 500
"""From here on a request is its text, not the frame around it."""


@dataclass(frozen=True)
class Sample:
    """A recorded request."""

    id: str
    conversation: str
    kind: str
    counted: int
    """Loom's bound."""
    usual: float
    """Loom's estimate where there is no reply yet."""
    actual: int
    """Input tokens by the provider, from its cache or not."""


def main() -> None:
    """Print tables."""
    _recorded(recordings(Path(os.environ["LOOM_TEST_DATA"])))


def recordings(data: Path) -> list[Json]:
    """All exchanges in the folder that LOOM_TEST_DATA names."""
    lines = (data / "anthropic_recordings" / "recordings.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def skipped(recording: Json) -> str | None:
    """Why a recording cannot be compared; None if it can."""
    if recording["status"] != 200:
        return "refused: there is no usage"
    asked = json.dumps(recording["request"])
    return next((why for why, told in UNCOUNTED.items() if told.search(asked)), None)


def sample(recording: Json) -> Sample:
    """Count a recorded request as Loom counts its own."""
    request, model = recording["request"], recording["request"]["model"]
    counted, usual = count_request(request, model)
    return Sample(
        id=recording["id"],
        conversation=recording["id"].partition("#")[0],
        kind=_kind(request, counted),
        counted=counted,
        usual=usual,
        actual=_input_tokens(recording["body"]),
    )


def count_request(request: Json, model: str) -> tuple[int, float]:
    """The most tokens that a request's body is, by Loom's counting, and what it usually is."""
    count = partial(tokens.count, model=model)
    system = request.get("system", "")
    texts = [system] if isinstance(system, str) else [block["text"] for block in system]
    specs = tuple(
        ToolSpec(tool["name"], tool.get("description", ""), tool["input_schema"]) for tool in request.get("tools", ())
    )
    messages = [said for message in request["messages"] for said in _said(message)]
    fixed = REQUEST_OVERHEAD_TOKENS + sum(map(count, texts)) + tools_tokens(specs, count)
    bound = fixed + chat_tokens(messages, count)
    frame, share = tokens.frame(model), tokens.typical(model)
    usual = usual_tokens(bound, messages, len(specs), text_share=share, frame=frame, count=count)
    return bound, usual + (THINKING_TOKENS if request.get("thinking", {}).get("type") == "enabled" else 0)


def after_a_reply(samples: Sequence[Sample]) -> Iterator[tuple[Sample, float]]:
    """The second and later calls of each conversation, with what is shown after the reply before: see Session."""
    for former, call in pairwise(samples):
        if call.conversation == former.conversation:
            yield call, corrected(call.usual, correction(former.actual, former.usual))


def _said(message: Json) -> Iterator[ChatMessage]:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    results = [block for block in blocks if block["type"] == "tool_result"]
    if results:
        yield ChatMessage("tool", outcomes=tuple(ToolOutcome(r["tool_use_id"], "", _content(r)) for r in results))
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    uses = tuple(ToolUse(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use")
    thoughts = tuple(block for block in blocks if block["type"] not in ("text", "tool_use", "tool_result"))
    if text or uses or thoughts:
        yield ChatMessage(message["role"], text, tool_uses=uses, opaque=thoughts)


def _content(result: Json) -> str:
    given = result.get("content", "")
    return given if isinstance(given, str) else "".join(block.get("text") or str(block) for block in given)


def _kind(request: Json, counted: int) -> str:
    if "thinking" in request:
        return "thinking asked for"
    if "tool_result" in json.dumps(request["messages"]):
        return "tools, calls and results"
    if "tools" in request:
        return "tools"
    return "long text" if counted > LONG_TOKENS else "short text"


def _input_tokens(body: str) -> int:
    """Of a reply, streamed or not: with what came from the provider's cache or went into it."""
    is_stream = body.startswith("event:")
    usage = json.loads(re.findall(r"^data: ?(.*)$", body, re.M)[0])["message"]["usage"] if is_stream else None
    usage = usage or json.loads(body)["usage"]
    return sum(usage.get(f"{name}input_tokens") or 0 for name in ("", "cache_read_", "cache_creation_"))


def _recorded(all_recordings: Sequence[Json]) -> None:
    samples = [sample(recording) for recording in all_recordings if skipped(recording) is None]
    later = list(after_a_reply(samples))
    print(f"{len(samples)} of {len(all_recordings)} recordings; left out:")
    for why in sorted({why for recording in all_recordings if (why := skipped(recording))}):
        print(f"- {sum(skipped(recording) == why for recording in all_recordings)} with {why}")
    print(
        "\n| | recordings | in the bound | bound: off by, median, 90 %, worst | usual | after a reply |\n"
        + "| --- " * 6
        + "|"
    )
    for kind in ["all", *sorted({each.kind for each in samples})]:
        some = [each for each in samples if kind in ("all", each.kind)]
        shown = [(call, estimate) for call, estimate in later if kind in ("all", call.kind)]
        covered = sum(each.actual <= each.counted for each in some)
        cells = (
            errors((each.counted, each.actual) for each in some),
            errors((each.usual, each.actual) for each in some),
            errors((estimate, call.actual) for call, estimate in shown) + (f" (of {len(shown)})" if shown else ""),
        )
        print(f"| {kind} | {len(some)} | {covered} | {' | '.join(cells)} |")


def errors(pairs: Iterable[tuple[float, int]]) -> str:
    """Median and 90th percentile of how far estimates are off, and the worst: relative, each with the actual figure."""
    shares = [estimate / actual - 1 for estimate, actual in pairs]
    if not shares:
        return "none"
    sizes = sorted(map(abs, shares))
    off = f"{median(sizes):.1%}, {sizes[int(0.9 * (len(sizes) - 1))]:.1%}"
    return f"{off}, {max(shares, key=abs):+.1%}"


if __name__ == "__main__":
    main()
