"""Holds texts, and JSON with all that is in it, against the rules of a stage: what is taken out, and may it be used?"""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from loom_worker.core.values.guardrails import INJECTION, Stage, StageRules
from loom_worker.core.values.json import Json
from loom_worker.guard.findings import SECRET, marker_of, redacted, scan
from loom_worker.guard.injection import injections

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Checked(Generic[T]):
    """A text or JSON that was held against rules."""

    kept: T
    """Without what the rules take out."""
    decisions: tuple[Json, ...] = ()
    """What was decided, as the audit keeps it: ``{kind, name, outcome}``, and nothing of the text."""
    blocked_for: tuple[str, ...] = ()
    """The kinds for which it may not be used; empty: it may."""


def check(stage: Stage, text: str, rules: StageRules) -> Checked[str]:
    """Search a text for what the rules of its stage name."""
    search = _Search(rules)
    return search.done(stage, search.result(text) if stage == "tool_result" else search.text(text))


def check_json(stage: Stage, value: T, rules: StageRules, *, name: str = "") -> Checked[T]:
    """Search all names, texts and numbers of a JSON value, also of JSON in its texts; it keeps its shape."""
    search = _Search(rules)
    try:
        return search.done(stage, search.value(value, name) if rules else value)
    except RecursionError:  # hundreds of lists in each other: what cannot be searched may not be used
        return Checked(value, decisions_on(stage, rules, rules), tuple(rules))


def decisions_on(stage: Stage, kinds: Iterable[str], rules: StageRules) -> tuple[Json, ...]:
    """What the rules of a stage make of what was found, each kind once."""
    return tuple({"kind": "guard", "name": f"{stage}.{kind}", "outcome": rules[kind]} for kind in dict.fromkeys(kinds))


class _Search:
    def __init__(self, rules: StageRules) -> None:
        self._rules, self._found = rules, dict[str, None]()

    def done(self, stage: Stage, kept: T) -> Checked[T]:
        blocked_for = tuple(kind for kind in self._found if self._rules[kind] == "block")
        return Checked(kept, decisions_on(stage, self._found, self._rules), blocked_for)

    def result(self, text: str) -> str:
        """A tool's result, which no rule lets give orders that a user may give."""
        for start, end in reversed([*injections(text, in_result=True)] if INJECTION in self._rules else []):
            self._found[INJECTION] = None
            if self._rules[INJECTION] == "redact":
                text = text[:start] + marker_of(INJECTION) + text[end:]
        # Injection has been sought, by more rules than for other texts.
        return self.text(text, {kind: action for kind, action in self._rules.items() if kind != INJECTION})

    def text(self, text: str, rules: StageRules | None = None) -> str:
        found = scan(text, self._rules if rules is None else rules)
        kinds = dict.fromkeys(kind for each in found for kind in (each.kind, *each.others))
        self._found.update(kinds)
        taken = [kind for kind in kinds if self._rules[kind] == "redact"]
        return redacted(text, taken) if taken else text

    def value(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            kept: Json = {}
            for key, each in value.items():
                shown = self.text(key)
                kept[f"{shown} {len(kept)}" if shown in kept else shown] = self.value(each, shown)
            return kept
        if isinstance(value, list):
            return [self.value(each, name) for each in value]
        return value if value is None or isinstance(value, bool) else self._leaf(value, name)

    def _leaf(self, value: str | float, name: str) -> str | float:
        text = was = str(int(value) if isinstance(value, float) and value.is_integer() else value)
        with suppress(ValueError, RecursionError):  # no JSON, or too deep: it is searched as any text
            if text.lstrip()[:1] in ("{", "[") and (kept := self.value(inner := json.loads(text), name)) != inner:
                text = json.dumps(kept, ensure_ascii=False)
        text = self.text(text)
        if name and "secret" in self._rules and scan(json.dumps({name: text}), ("secret",)):  # its name gives it away
            self._found["secret"] = None
            text = SECRET if "redact" in self._rules["secret"] else text
        return value if text == was else text
