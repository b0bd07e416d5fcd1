"""Guardrails: what texts are searched for at which stage of a turn, and what becomes of what is found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from loom_worker.core.values.json import Json

Stage = Literal["input", "arguments", "tool_result", "output"]
"""What a user says, what the model calls a tool with, what the tool returns, what the model answers."""
Action = Literal["flag", "redact", "block"]
"""From the mildest to the strictest: it is noted; it is taken out; the turn, or the tool's result, is refused."""
STAGES: tuple[Stage, ...] = get_args(Stage)
CHECKED_STAGES: tuple[Stage, ...] = ("input", "tool_result")
"""Where a model can be asked about injection."""
ACTIONS: tuple[Action, ...] = get_args(Action)
SENSITIVE = ("secret", "card", "ssn", "iban", "phone", "email", "ip")
"""What can be found and removed: secrets, and what identifies a person."""
INJECTION = "injection"
"""An attempt to give the model instructions that are not its operator's."""
KINDS = (*SENSITIVE, INJECTION)
PERSONAL = "pii"
"""In files and requests, for all of SENSITIVE but secrets."""
OTHER_WORDS: Mapping[str, str] = {"secrets": "secret"}
"""In rules that are listed, for which kind they stand."""

StageRules = Mapping[str, Action]
"""By kind."""


@dataclass(frozen=True, slots=True)
class Guardrails:
    """The rules of an agent or of a workspace; what a stage does not name is not searched for."""

    input: StageRules = field(default_factory=dict)
    arguments: StageRules = field(default_factory=dict)
    tool_result: StageRules = field(default_factory=dict)
    output: StageRules = field(default_factory=dict)
    models: Mapping[Stage, str] = field(default_factory=dict)
    """``provider/model`` that is asked about injection where the rules find none, by stage: one of CHECKED_STAGES."""

    @classmethod
    def of(cls, given: Json | None) -> "Guardrails":
        """Read what a file or a request says, already checked; ``arguments`` that are not there follow ``output``."""
        given = {"arguments": (given or {}).get("output"), **(given or {})}
        stages = {stage: _whole(given.get(stage) or {}) for stage in STAGES}
        return cls(**stages, models=given.get("models") or {})

    def at(self, stage: Stage) -> StageRules:
        rules: StageRules = getattr(self, stage)
        return rules

    def with_those_of(self, other: "Guardrails") -> "Guardrails":
        """Both together; of two actions for the same the stricter one holds."""
        both = {each: by_kind((*self.at(each).items(), *other.at(each).items())) for each in STAGES}
        return Guardrails(**both, models={**other.models, **self.models})

    def as_json(self) -> Json:
        """What ``of`` reads: ``{stage: {kind: action}}``."""
        stages: Json = {stage: dict(self.at(stage)) for stage in STAGES if self.at(stage) or stage == "arguments"}
        return {**stages, "models": dict(self.models)} if self.models else stages


NO_GUARDRAILS = Guardrails()


def kinds_at(stage: Stage) -> tuple[str, ...]:
    """What a file or a request can name at a stage; an answer is not searched for injection."""
    return (PERSONAL, *(SENSITIVE if stage == "output" else KINDS))


def by_kind(rules: Iterable[tuple[str, Action]]) -> dict[str, Action]:
    """Listed rules, each what to find and an action, by kind; of two actions for the same the stricter one holds."""
    found: dict[str, Action] = {}
    for word, action in rules:
        kind = OTHER_WORDS.get(word, word)
        found[kind] = max(found.get(kind, action), action, key=ACTIONS.index)
    return found


def by_stage(given: Json) -> Json:
    """Guardrails of a request in the one form that is stored: ``{stage: {kind: action}}``.

    Args:
        given: already checked; a stage is such a mapping, or a list of ``{find, action}``.
    """
    return {
        stage: by_kind((rule["find"], rule["action"]) for rule in rules) if isinstance(rules, list) else rules
        for stage, rules in given.items()
    }


def _whole(given: Mapping[str, Action]) -> dict[str, Action]:
    """The group spelt out; a kind that is named beside it keeps its own action."""
    group = given.get(PERSONAL)
    spelt = dict.fromkeys(SENSITIVE[1:], group) if group else {}
    return {**spelt, **{kind: action for kind, action in given.items() if kind != PERSONAL}}
