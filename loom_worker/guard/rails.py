"""Holds a text against the rules of a stage: what is taken out of it, and whether it may be used at all."""

from collections.abc import Iterable
from dataclasses import dataclass

from loom_worker.core.values.guardrails import Stage, StageRules
from loom_worker.core.values.json import Json
from loom_worker.guard.findings import scan
from loom_worker.guard.redact import redacted


@dataclass(frozen=True, slots=True)
class CheckedText:
    """A text that was held against rules."""

    text: str
    """Without what the rules take out."""
    decisions: tuple[Json, ...] = ()
    """What was decided, as the audit keeps it: ``{kind, name, outcome}``, and nothing of the text."""
    blocked_for: tuple[str, ...] = ()
    """The kinds for which the text may not be used; empty: it may."""


def check(stage: Stage, text: str, rules: StageRules) -> CheckedText:
    """Search a text for what the rules of its stage name."""
    if not rules or not text:
        return CheckedText(text)
    kinds = [each.kind for each in scan(text, tuple(rules))]
    if not kinds:
        return CheckedText(text)
    taken = tuple(kind for kind, action in rules.items() if action == "redact" and kind in kinds)
    blocked = tuple(kind for kind, action in rules.items() if action == "block" and kind in kinds)
    return CheckedText(redacted(text, taken) if taken else text, decisions_on(stage, kinds, rules), blocked)


def decisions_on(stage: Stage, kinds: Iterable[str], rules: StageRules) -> tuple[Json, ...]:
    """What the rules of a stage make of what was found, each kind once."""
    return tuple({"kind": "guard", "name": f"{stage}.{kind}", "outcome": rules[kind]} for kind in dict.fromkeys(kinds))
