"""Judges as the harness knows them: the panel of its agent, how Loom asks one, and what ours say. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.marks import mark_of, replies_in
from tests.support.messages_rules import blocks

TOOL = "give_verdict"
"""The tool by whose call a judge answers."""
ASKED = ("first", "second")
"""Judges of our panel that are asked of the model; the third one looks for words."""
MEMBERS = len(ASKED) + 1
THRESHOLD = 0.7
MOST_ANSWERS = 3
JUDGED = "judged"
"""Name of the agent whose answers are judged."""
AGENT = f"""
  judges:
    threshold: {THRESHOLD}
    max_retries: {MOST_ANSWERS}
    members:
      - {{name: first, type: llm, criteria: "Rubric of first: it says something."}}
      - {{name: second, type: llm, criteria: "Rubric of second: it says it again.", weight: 2}}
      - {{name: words, type: contains, criteria: "says:"}}
  judge_llm: {{model: JUDGE}}
  budget: {{tokens: 1000000000, day: {{tokens: 900000000, usd: 90000}}, month: {{usd: 95000}}}}
"""
"""What its file has beside that of other agents: a panel, and budgets that are never spent, to see them kept."""
SCORES: Mapping[str, float] = {"pass": 0.9, "fail": 0.2}
"""By the words of ``judged=``; with any other word no score is given."""
CORRECTS = "[Loom: your answer was judged"
"""How the message begins with which Loom has an answer given anew."""
RUBRIC = re.compile(r"\bRubric of (\w+):")
DATA = r"{}:\n<data (\w+)>\n(.*?)\n</data \1>"
QUESTION, ANSWER = (re.compile(DATA.format(title), re.DOTALL) for title in ("The question", "The answer to be judged"))
ANEW = re.compile(r"\banew-(\d+)\b")
"""Stands in an answer that is given anew: how many were before it."""


@dataclass(frozen=True)
class Look:
    """What a judge is asked to look at."""

    judge: str
    """The name of the member, by its rubric."""
    mark: str
    """Of the turn."""
    nth: int
    """The answer ends with the turn's n-th reply."""
    anew: int
    """How many answers of the turn were given before it."""
    question: str

    @property
    def key(self) -> tuple[str, int, str]:
        """Equal for two requests for the same verdict."""
        return self.mark, self.nth, self.judge


def is_judging(body: Mapping[str, Any]) -> bool:
    """True of a request for a verdict, not for a turn's reply."""
    schema = body.get("output_config", {}).get("format", {}).get("schema", {})
    return "score" in schema.get("properties", {}) or dict(body.get("tool_choice", {})).get("name") == TOOL


def look_of(body: Mapping[str, Any]) -> Look:
    """What a request for a verdict is about."""
    system = "\n".join(block["text"] for block in blocks(body.get("system", [])))
    text = "\n".join(block["text"] for message in body["messages"] for block in blocks(message["content"]))
    question, answer = (found[2] if (found := each.search(text)) else "" for each in (QUESTION, ANSWER))
    judge, before = RUBRIC.search(system), ANEW.search(answer)
    *_, (mark, nth) = (mark_of(question), 0), *replies_in(answer)
    return Look(judge[1] if judge else "", mark, nth, int(before[1]) if before else 0, question)


def score_of(look: Look, words: Sequence[str]) -> float | None:
    """What our judge gives the answer; None: it says nothing of use.

    Args:
        words: of ``judged=``: what becomes of the turn's first answer, of its second…; the last holds for the rest.
    """
    return SCORES.get(words[min(look.anew, len(words) - 1)] if words else "pass")


def critique(look: Look, score: float) -> str:
    """What is to be mended."""
    return "" if score >= THRESHOLD else f"The {look.judge} judge wants more."


def is_correction(text: str) -> bool:
    """True of the message that has an answer given anew: it is no question of the user's."""
    return text.startswith(CORRECTS)
