"""What a workflow's stage is asked: the question apart from what stands beside it, and the form of the answer.

The phrases are those that ``loom_worker/workflows`` adds to prompts; this layer cannot import them, so the tests play
workflows with the engine itself.
"""

import re
from dataclasses import dataclass
from typing import Literal

Form = Literal["text", "yes-no", "choice", "vote"]
HISTORY = "\n\nWhat was said before:\n\n"
YES_OR_NO = "Answer with yes or no first, then say why in one sentence."
_ASKED_AGAIN = ("Your output cannot be used: ", "A person has looked at your output and asks for a change: ")
UNCHANGED = (
    "I cannot put it right. I am Loom's scripted demo model, and my answer to a question is the same each time it is "
    "asked."
)
"""Holds no word that could be taken for an answer."""
_VOTES = "\n\nVotes so far:\n"
_HOW_TO_VOTE = (
    "Give your reasons, and end with two lines:\nVOTE: your choice, in as few words as possible\n"
    "CONFIDENCE: a number from 0 to 1"
)
_HOW_TO_RESTART = (
    "If the work must be done again, say so on a line of its own: RESTART, then the name of the stage from which "
    "on, then a colon and what must be better."
)
_CHOICES = re.compile(
    r"\s(?:answer|reply) with (?:only |just |exactly )?"
    r"(?:one (?:word|of these(?: words)?)(?:, and nothing else)?: (?P<listed>[^:.?!\n]+)|"
    r"(?P<verdict>yes or no))\.?",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"\s*(?:, or |,| or )\s*")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question, and how it is to be answered."""

    question: str
    form: Form = "text"
    choices: tuple[str, ...] = ()
    """Choices of a ``choice``: the answer is one of them, and nothing else."""


def asks_again(text: str) -> bool:
    """Is this what an agent is told whose answer was not taken?"""
    return text.startswith(_ASKED_AGAIN)


def read_prompt(text: str) -> Prompt:
    """Read a prompt; earlier answers and votes beside the question restrict nothing, and are left out."""
    asked = text.strip().removesuffix(_HOW_TO_RESTART)
    asked = f"{asked}\n".partition(HISTORY)[0].strip()
    if asked.endswith(_HOW_TO_VOTE):
        return Prompt(asked.removesuffix(_HOW_TO_VOTE).partition(_VOTES)[0].strip(), "vote")
    if asked.endswith(YES_OR_NO):
        return Prompt(asked.removesuffix(YES_OR_NO).strip(), "yes-no")
    question = asked
    listed: tuple[str, ...] = ()
    while (found := _at_the_end(question)) is not None:  # a workflow's own sentence, and the engine's behind it
        named = ("yes", "no") if found["verdict"] else tuple(_BETWEEN.split(found["listed"].strip()))
        question, listed = question[: found.start()].rstrip(), listed or named
    return Prompt(question, "choice", listed) if len(listed) > 1 and all(listed) else Prompt(asked)


def _at_the_end(text: str) -> re.Match[str] | None:
    """The sentence at the end of a text that lists the possible answers."""
    return next((found for found in _CHOICES.finditer(text) if found.end() == len(text)), None)
