"""Measure summaries without a model against cutting: `python -m bench.summaries`, with LOOM_TEST_DATA.

The dialogues there are summarized eight messages at a time, each batch to a share of its tokens. Later somebody asked
about them, and every question names the messages that answer it. What counts is how much of those messages is still in
the summaries: their rare words (those in at most 1 % of a dialogue's messages, weighted by how rare), their names and
their numbers. Beside it two ways of cutting at the same length: the beginning of each message, and that of the batch.
"""

import gzip
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import log
from pathlib import Path
from typing import Any

from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.sessions import Message
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.memory.heuristic import summarize

BATCH, SHARES = 8, (0.1, 0.2, 0.3)
RARE = 0.01
"""Share of a dialogue's messages that may hold a rare word."""
_WORD = re.compile(r"[^\W_]+(?:['’.,:/@-][^\W_]+)*")
KINDS = ("rare words", "names", "numbers")
Summarizer = Callable[[Sequence[Message], int], str]


def main() -> None:
    """Print the table."""
    data = os.environ.get("LOOM_TEST_DATA") or sys.exit("LOOM_TEST_DATA names no folder with dialogues.")
    dialogues = json.loads(gzip.decompress((Path(data) / "dialogues" / "dialogues3.json.gz").read_bytes()))
    counted = " · ".join(f"{kind} {number}" for kind, number in zip(KINDS, asked_for(dialogues), strict=True))
    print(f"Questions whose evidence has any: {counted}\n")
    print("| share of the tokens | way | rare words | names | numbers | tokens used |")
    print("| --- | --- | --- | --- | --- | --- |")
    for share in SHARES:
        for name, way in WAYS.items():
            found = measured(dialogues, way, share=share)
            shown = " | ".join(f"{100 * value:.1f} %" for value in found)
            print(f"| {share:.0%} | {name} | {shown} |", flush=True)


def measured(dialogues: Sequence[Any], way: Summarizer, *, share: float) -> tuple[float, float, float, float]:
    """Means over all questions: rare words, names and numbers that survive; tokens of the summaries over the texts'."""
    kept: tuple[list[float], ...] = ([], [], [])
    spent = whole = 0
    for dialogue in dialogues:
        summary_of: dict[str, frozenset[str]] = {}
        for batch in batches(dialogue["messages"]):
            tokens = sum(cl100k_tokens(message.chat.text) for message in batch)
            text = way(batch, round(tokens * share))
            spent, whole = spent + cl100k_tokens(text), whole + tokens
            summary_of |= dict.fromkeys((message.id for message in batch), words(text))
        matters = matter(dialogue["messages"])
        for asked in dialogue["questions"]:
            for kind, values in enumerate(kept):
                values += survival([(matters[at][kind], summary_of[at]) for at in asked["evidence"] if at in matters])
    return (*map(mean, kept), spent / whole)  # type: ignore[return-value]


def asked_for(dialogues: Sequence[Any]) -> list[int]:
    """How many questions have evidence with anything of each kind."""
    numbers = [0 for _ in KINDS]
    for dialogue in dialogues:
        matters = matter(dialogue["messages"])
        for asked in dialogue["questions"]:
            for kind in range(len(KINDS)):
                numbers[kind] += any(matters[at][kind] for at in asked["evidence"] if at in matters)
    return numbers


def survival(evidence: Iterable[tuple[dict[str, float], frozenset[str]]]) -> list[float]:
    """The share by weight of what matters that its summary holds; nothing where nothing matters."""
    pairs = list(evidence)
    whole = sum(sum(weights.values()) for weights, _ in pairs)
    held = sum(weight for weights, summary in pairs for word, weight in weights.items() if word in summary)
    return [held / whole] if whole else []


def matter(messages: Sequence[Any]) -> dict[str, tuple[dict[str, float], ...]]:
    """For each message its rare words by weight, its names and its numbers."""
    said = {message["id"]: message["text"] for message in messages}
    holding = Counter(word for text in said.values() for word in words(text))
    weight = {word: log(len(said) / count) for word, count in holding.items()}
    most = max(1, round(RARE * len(said)))
    speakers = frozenset(message["speaker"].lower() for message in messages)
    return {
        at: (
            {word: weight[word] for word in words(text) if holding[word] <= most},
            {word: weight[word] for word in names(text) - speakers},
            {word: weight[word] for word in words(text) if any(map(str.isdigit, word))},
        )
        for at, text in said.items()
    }


def words(text: str) -> frozenset[str]:
    """The words of a text in lower case; a possessive counts as its owner."""
    return frozenset(re.sub(r"['’]s$", "", word.lower()) for word in _WORD.findall(text))


def names(text: str) -> frozenset[str]:
    """Words with a capital that do not begin a sentence."""
    inner = re.findall(r"(?<=[\w,;:] )[A-Z][a-z]\w*", text)
    return words(" ".join(inner))


def batches(messages: Sequence[Any]) -> list[list[Message]]:
    """The messages as Loom has them, so many at a time: who speaks first is the user."""
    first = messages[0]["speaker"]
    made = [
        Message(
            each["id"], "s", "t", ChatMessage("user" if each["speaker"] == first else "assistant", each["text"]), 1, 1
        )
        for each in messages
    ]
    return [made[start : start + BATCH] for start in range(0, len(made), BATCH)]


def ours(batch: Sequence[Message], most_tokens: int) -> str:
    """The way that is measured."""
    return summarize(batch, most_tokens=most_tokens, count=cl100k_tokens)


def first_of_batch(batch: Sequence[Message], most_tokens: int) -> str:
    """The batch from its beginning; who says what is not said, so it costs nothing."""
    return cut("\n".join(message.chat.text for message in batch), most_tokens)


def first_of_each(batch: Sequence[Message], most_tokens: int) -> str:
    """As much of the beginning of each message as there is room for, the same for each; short ones leave theirs."""
    lengths = [cl100k_tokens(message.chat.text) for message in batch]
    each = max(k for k in range(most_tokens + 1) if sum(min(k, length) for length in lengths) <= most_tokens)
    return "\n".join(cut(message.chat.text, each) for message in batch)


def cut(text: str, most_tokens: int) -> str:
    """The first words of a text that fit."""
    ends = [0, *accumulate(len(piece) for piece in re.findall(r"\S+\s*|\s+", text))]
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cl100k_tokens(text[: ends[middle]].rstrip()) <= most_tokens else (low, middle - 1)
    return text[: ends[low]].rstrip()


WAYS: dict[str, Summarizer] = {
    "beginning of the batch": first_of_batch,
    "beginning of each message": first_of_each,
    "summary": ours,
}


def mean(values: Sequence[float]) -> float:
    """0 where there are none."""
    return sum(values) / max(1, len(values))


if __name__ == "__main__":
    main()
