"""What an agent's file says of its judges; InvalidField is raised for a value that cannot be used."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from loom_worker.core.errors import BadSettings
from loom_worker.core.fields import Fields, present
from loom_worker.core.values.judges import (
    CANNOT_TELL,
    CRITICALITIES,
    JUDGE_TYPES,
    MOST_ANSWERS,
    MOST_MEMBERS,
    STRATEGIES,
    STRATEGY_ALIASES,
    JudgeType,
    Panel,
    PanelMember,
    Strategy,
)
from loom_worker.judge.checks import compiled, validator
from loom_worker.judge.grounded import PARTS

NAME_CHARS = 64
USUAL_TIMEOUT_S = {"llm": 60.0, "json_schema": 10.0}
"""For one verdict, by the judge's type."""
OTHER_TIMEOUT_S = 30.0


def panel(spec: Fields) -> Panel | None:
    """The judges of the agent; None if it has none."""
    if spec.get("judges") is None:
        return None
    fields = spec.under("judges")
    members: list[PanelMember] = []
    for entry in fields.each("members"):
        member = _member(entry)
        if any(member.name == other.name for other in members):
            raise entry.invalid("name", "a name that no other judge has", member.name)
        members.append(member)
    if not 1 <= len(members) <= MOST_MEMBERS:
        raise fields.invalid("members", f"a list of 1 to {MOST_MEMBERS} judges", f"{len(members)} of them")
    threshold, answers = fields.number("threshold", most=100), fields.whole("max_retries", most=MOST_ANSWERS)
    given = present(threshold=threshold / 100 if threshold and threshold > 1 else threshold, max_answers=answers)
    return Panel(tuple(members), _strategy(fields), **given)


def _strategy(fields: Fields) -> Strategy:
    given = fields.text("strategy")
    known: dict[str, Strategy] = {**{each: each for each in STRATEGIES}, **STRATEGY_ALIASES}
    found = known.get((given or "mean").strip().lower().replace("_", "-"))
    if found is None:
        raise fields.invalid("strategy", "one of " + ", ".join(known), given)
    return found


def _member(entry: Fields) -> PanelMember:
    name = entry.required("name")
    if len(name) > NAME_CHARS:
        raise entry.invalid("name", f"a name of at most {NAME_CHARS} characters", name)
    kind = entry.choice("type", JUDGE_TYPES) or "llm"
    criticality = entry.choice("criticality", CRITICALITIES) or "non_critical"
    cannot_tell = entry.choice("cannot_tell", CANNOT_TELL) if kind == "grounded" else None
    return PanelMember(
        name=name,
        type=kind,
        criteria=_CRITERIA[kind](entry),
        criticality=criticality,
        timeout_s=entry.number("timeout_seconds") or USUAL_TIMEOUT_S.get(kind, OTHER_TIMEOUT_S),
        cannot_tell=cannot_tell or ("fail" if criticality == "safety_critical" else "skip"),
        **present(weight=entry.number("weight")),
    )


def _rubric(entry: Fields) -> str:
    lines = _texts(entry, "what a good answer is like")
    return lines[0] if len(lines) == 1 else "\n".join(f"- {line}" for line in lines)


def _contained(entry: Fields) -> Mapping[str, list[str]]:
    if not isinstance(entry.get("criteria"), dict):
        return {"all": _texts(entry, "a text that must occur")}
    fields = entry.under("criteria")
    found = {key: list(texts) for key in ("all", "any", "none") if (texts := fields.texts(key))}
    if not found or any(not text.strip() for texts in found.values() for text in texts):
        raise entry.invalid("criteria", "texts under all, any or none", entry.get("criteria"))
    return found


def _patterns(entry: Fields) -> list[str]:
    patterns = _texts(entry, "a regular expression")
    _check(entry, lambda: [compiled(each) for each in patterns])
    return patterns


def _schema(entry: Fields) -> Any:
    schema = entry.get("criteria")
    if not isinstance(schema, dict):
        raise entry.invalid("criteria", "a JSON Schema", schema)
    _check(entry, lambda: validator(json.dumps(schema, default=str)))
    return schema


def _grounded_parts(entry: Fields) -> list[str]:
    if entry.get("criteria") is None:
        return list(PARTS)
    parts = _texts(entry, f"some of {', '.join(PARTS)}")
    if any(part not in PARTS for part in parts):
        raise entry.invalid("criteria", f"some of {', '.join(PARTS)}", entry.get("criteria"))
    return parts


def _texts(entry: Fields, what: str) -> list[str]:
    given = entry.get("criteria")
    texts = [given] if isinstance(given, str) else list(entry.texts("criteria") or ())
    if not texts or any(not text.strip() for text in texts):
        raise entry.invalid("criteria", f"{what}, or a list of such", given)
    return texts


def _check(entry: Fields, compiles: Callable[[], object]) -> None:
    try:
        compiles()
    except BadSettings as error:
        raise entry.invalid("criteria", f"something else ({error})", entry.get("criteria")) from error


_CRITERIA: Mapping[JudgeType, Callable[[Fields], Any]] = {
    "llm": _rubric,
    "contains": _contained,
    "regex": _patterns,
    "json_schema": _schema,
    "grounded": _grounded_parts,
    "python": lambda entry: entry.required("criteria"),
}
