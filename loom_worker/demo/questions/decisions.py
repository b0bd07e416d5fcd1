"""Answers in the form that a prompt asks for: yes or no, one of several choices, or a vote.

Only two things are decided: whether a measure rose or dropped, and which group ranks first. All else is refused.
"""

import re
from collections.abc import Mapping

from loom_worker.core.values.json import Json
from loom_worker.demo.prompts import Prompt
from loom_worker.demo.questions.answer import answer_text, went
from loom_worker.demo.questions.plan import Plan

_WORDS: Mapping[str, frozenset[str]] = {
    "up": frozenset("up rise rose risen grow grew grown increase increased higher".split()),
    "down": frozenset("down drop dropped fall fell fallen decline declined decrease decreased lower".split()),
    "same": frozenset("same unchanged flat stable".split()),
}
"""Choices that stand for a direction."""
_VOTE = {"up": "rose", "down": "dropped", "same": "unchanged"}


def worded(prompt: Prompt, plan: Plan, result: Json, *, asks_several: bool) -> str | None:
    """The answer to a plan in the form of its prompt; None if the rows do not decide it.

    Args:
        asks_several: the question names a number, so that a first place alone is no answer to it.
    """
    text = answer_text(plan, result)
    if prompt.form == "text":
        return text
    direction = went(plan, result) if plan.is_change and not plan.head.group and not plan.asks_why else None
    verdict = _verdict(plan, direction)
    if prompt.form == "yes-no":
        why = text.partition("\n")[0]
        return f"{verdict.capitalize()}. {why}" if verdict else None
    first = None if asks_several else _first(plan, result)
    if prompt.form == "choice":
        return _chosen(prompt.choices, verdict or first, direction)
    voted = verdict or first or (_VOTE[direction] if direction else None)
    # The database decides it, so the voter is sure.
    return f"{text}\n\nVOTE: {voted}\nCONFIDENCE: 1" if voted else None


def undecided(choices: tuple[str, ...], why: str) -> str:
    """What is said instead of a choice; it holds none of the choices, so that no reader takes it for one."""
    names_one = any(re.search(rf"\b{re.escape(choice)}\b", why, re.IGNORECASE) for choice in choices)
    return "Undecided." if names_one else f"Undecided. {why}"


def _verdict(plan: Plan, direction: str | None) -> str | None:
    """Yes or no, where the question takes a rise or a drop for granted."""
    if not plan.asked or direction is None:
        return None
    return "yes" if plan.asked == direction else "no"


def _first(plan: Plan, result: Json) -> str | None:
    """The name of the group that ranks first, if it alone does."""
    head, rows = plan.head, result["rows"]
    if plan.is_compared or not (head.group and head.measures and head.limit) or head.is_ascending or not rows:
        return None
    is_shared = len(rows) > 1 and rows[0][1] == rows[1][1]
    return None if is_shared or rows[0][1] is None else str(rows[0][0])


def _chosen(choices: tuple[str, ...], name: str | None, direction: str | None) -> str | None:
    """The one choice that says what was found; None if none does, or several do."""
    found = [choice for choice in choices if name is not None and choice.casefold() == name.casefold()]
    if not found and direction is not None:
        found = [choice for choice in choices if choice.casefold() in _WORDS[direction]]
    return found[0] if len(found) == 1 else None
