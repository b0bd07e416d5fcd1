"""Judges of an agent's answers: who they are, what each of them said, and what came of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.cutting import dump, items, size_bytes
from loom_worker.core.values.ids import lasted_ms
from loom_worker.core.values.json import Json

JudgeType = Literal["llm", "contains", "regex", "json_schema", "grounded", "python"]
JUDGE_TYPES: tuple[JudgeType, ...] = get_args(JudgeType)
Strategy = Literal["mean", "median", "min", "max", "weighted", "vote"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
STRATEGY_ALIASES: dict[str, Strategy] = {
    "weighted-average": "weighted",
    "all-must-pass": "min",
    "majority-pass": "vote",
    "any-pass": "max",
    "min-score": "min",
    "max-score": "max",
}
Criticality = Literal["non_critical", "critical", "safety_critical"]
CRITICALITIES: tuple[Criticality, ...] = get_args(Criticality)
CannotTell = Literal["pass", "fail", "skip"]
CANNOT_TELL: tuple[CannotTell, ...] = get_args(CannotTell)

CORRECTION = "[Loom: your answer was judged "
"""How the message begins that asks a model to answer again."""
SCORE_DIGITS = 4
"""Digits of a score that is shown; whether an answer passes is decided before it is rounded."""
THRESHOLD = 0.7
MOST_ANSWERS, USUAL_ANSWERS = 10, 3
MOST_MEMBERS = 20
"""Members of a panel: each of them is a task of its own for every answer."""


@dataclass(frozen=True, slots=True)
class PanelMember:
    """One judge of a panel, as the agent's file says it."""

    name: str
    type: JudgeType
    criteria: Any = None
    """What it looks for; its shape depends on the type (docs/judges.md)."""
    weight: float = 1.0
    """For the strategy ``weighted``; above 0."""
    criticality: Criticality = "non_critical"
    timeout_s: float = 60.0
    cannot_tell: CannotTell = "skip"
    """How an answer counts that ``grounded`` can neither confirm nor reject; ``skip``: the judge is left out."""


@dataclass(frozen=True, slots=True)
class Panel:
    """The judges of an agent, and how their scores become one."""

    members: tuple[PanelMember, ...]
    strategy: Strategy = "mean"
    threshold: float = THRESHOLD
    """The score (0-1) from which on an answer passes."""
    max_answers: int = USUAL_ANSWERS
    """Answers that a turn gives at most, the first one included (``max_retries``)."""

    def member(self, name: str) -> PanelMember | None:
        """The member of this name; None where the file has none any more."""
        return next((member for member in self.members if member.name == name), None)

    def patient(self, least_s: float) -> "Panel":
        """The same panel, each model of which has at least so long for its verdict."""
        slow = (replace(each, timeout_s=max(each.timeout_s, least_s)) for each in self.members if each.type == "llm")
        others = {each.name: each for each in slow}
        return replace(self, members=tuple(others.get(each.name, each) for each in self.members))


VerdictStatus = Literal["pending", "running", "scored", "undecided", "dead", "cancelled"]
"""undecided: the judge cannot tell · dead: it gave no score · cancelled: its turn ended first."""
OPEN_VERDICT: tuple[VerdictStatus, ...] = ("pending", "running")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one judge says of one answer, from the moment it is asked."""

    reply_n: int
    """The journal step of the answer."""
    position: int
    """0, 1, 2… in the panel."""
    name: str
    type: JudgeType
    weight: float = 1.0
    criticality: Criticality = "non_critical"
    """Weight and criticality as they were when it was asked."""
    status: VerdictStatus = "pending"
    sends: int = 1
    """How often it was sent to the judge queue; the claim of a message that was overtaken fails."""
    deaths: int = 0
    """How many of its workers died."""
    sent_ms: int = 0
    worker: str | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    score: float | None = None
    """0-1."""
    critique: str | None = None
    """What the answer lacks, for the model that gave it."""
    error: str | None = None
    """Why there is no score."""
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    """What it cost, requests that led to nothing included as far as that is known."""

    @property
    def is_open(self) -> bool:
        """True until there is a result."""
        return self.status in OPEN_VERDICT

    @property
    def is_dead(self) -> bool:
        """True if there is no score, and the judge did not say that it cannot tell."""
        return self.score is None and self.status != "undecided"

    @property
    def duration_ms(self) -> int | None:
        """Milliseconds from claim to result; None where it never ran, or has not ended."""
        return lasted_ms(self.started_ms, self.finished_ms)

    def as_json(self, threshold: float) -> Json:
        """An entry of a Turn's ``judge.verdicts``; ``threshold``: the score from which on it is passed."""
        return {
            "name": self.name,
            "type": self.type,
            "status": self.status,
            "score": None if self.score is None else round(self.score, SCORE_DIGITS),
            "passed": None if self.score is None else self.score >= threshold,
            "critique": self.critique,
            "error": self.error,
            "criticality": self.criticality,
            "weight": self.weight,
            "model": self.model,
            "cost_usd": None if self.usage.cost_usd is None else float(self.usage.cost_usd),
            "duration_ms": self.duration_ms,
        }


@dataclass(frozen=True, slots=True)
class Judgement:
    """What all verdicts on one answer come to."""

    score: float | None
    """0-1, by the panel's strategy; None: nobody could say anything."""
    passed: bool | None
    """None: nobody could say anything, and nobody had to."""
    withheld_for: str | None = None
    """The safety-critical judge without whose consent no answer is complete; None: no such judge objects."""

    @classmethod
    def of_step(cls, payload: Json) -> "Judgement":
        """Read what the journal has of it."""
        return cls(payload["score"], payload["passed"], payload["withheld_for"])


LISTED_CHARS = 200
"""Characters of a critique or an error where a judge is shown in short."""


def shortened(judge: Json, budget: int) -> Json:
    """``judge`` of a Turn with little of each critique, and as many verdicts as fit."""
    verdicts = [
        {name: value[:LISTED_CHARS] if isinstance(value, str) else value for name, value in verdict.items()}
        for verdict in judge["verdicts"]
    ]
    rest = size_bytes(dump({**judge, "verdicts": []}))
    return {**judge, "verdicts": items(verdicts, budget - rest)}


def cost_by_model(verdicts: Iterable[Verdict]) -> dict[str, Usage]:
    """What verdicts cost, by the model that was asked."""
    costs: dict[str, Usage] = {}
    for verdict in verdicts:
        if verdict.usage.llm_calls:
            model = verdict.model or ""
            costs[model] = costs.get(model, Usage()) + verdict.usage
    return costs
