"""What an optimizer has learned for an agent: a layer in numbered versions, who is given which, and what came of it."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.ids import drawn
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.turns import TurnStatus

Form = Literal["dspy", "textgrad"]
FORMS: tuple[Form, ...] = ("dspy", "textgrad")
NONE = 0
"""The version of a session without a learned layer."""
HISTORY = 50
"""Versions that were active before, as far as ``rollback`` goes back."""


@dataclass(frozen=True, slots=True)
class FieldText:
    """What a signature says of one of its fields."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Signature:
    """The instructions of one predictor of a program."""

    name: str
    instructions: str = ""
    fields: tuple[FieldText, ...] = ()


@dataclass(frozen=True, slots=True)
class Demonstration:
    """An example of a signature's work."""

    signature: str
    values: Json
    """By field, in the order of the file; any JSON."""
    is_augmented: bool = False
    """True: the program's own run, kept because it scored well; False: an example of the training set."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """A prompt that was tuned by what a model criticized in its outcomes."""

    name: str
    value: str
    role: str = ""
    feedback: tuple[str, ...] = ()
    """The criticism, for people to read; no agent is sent it."""


@dataclass(frozen=True, slots=True)
class LearnedLayer:
    """One version's content, which never changes."""

    signatures: tuple[Signature, ...] = ()
    demonstrations: tuple[Demonstration, ...] = ()
    """The most helpful of each signature first, as its optimizer ordered them."""
    gradients: tuple[Gradient, ...] = ()

    def as_json(self) -> Json:
        return {
            "signatures": [
                {
                    "name": each.name,
                    "instructions": each.instructions,
                    "fields": [{"name": one.name, "description": one.description} for one in each.fields],
                }
                for each in self.signatures
            ],
            "demonstrations": [
                {"signature": each.signature, "augmented": each.is_augmented, "values": each.values}
                for each in self.demonstrations
            ],
            "gradients": [
                {"name": each.name, "role": each.role, "value": each.value, "gradients": list(each.feedback)}
                for each in self.gradients
            ],
        }

    @classmethod
    def from_json(cls, data: Json) -> Self:
        return cls(
            tuple(
                Signature(
                    each["name"],
                    each["instructions"],
                    tuple(FieldText(one["name"], one["description"]) for one in each["fields"]),
                )
                for each in data["signatures"]
            ),
            tuple(
                Demonstration(each["signature"], each["values"], each["augmented"]) for each in data["demonstrations"]
            ),
            tuple(
                Gradient(each["name"], each["value"], each["role"], tuple(each["gradients"]))
                for each in data["gradients"]
            ),
        )

    @property
    def sizes(self) -> Json:
        """How many there are of each."""
        return {name: len(getattr(self, name)) for name in ("signatures", "demonstrations", "gradients")}

    @property
    def digest(self) -> str:
        """64 hex digits; equal layers have the same, whatever file they came from."""
        return hashlib.sha256(json.dumps(self.as_json(), ensure_ascii=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class LearnedPolicy:
    """An agent's ``learned`` (API: agent YAML)."""

    is_enabled: bool = True
    """False: sessions that begin have no learned layer."""
    version: int | Literal["latest", "none"] | None = None
    """What sessions that begin are given, whatever is active; None: what is active."""
    max_tokens: int | None = None
    """Tokens of the system text; None: half of ROM's share of the input budget."""
    signatures: tuple[str, ...] | None = None
    """Names of the signatures and tuned prompts that are the agent's own; None: all of them."""

    def fixed(self, newest: int) -> int | None:
        """The version that the file prescribes, 0: none; None: what is active counts.

        Args:
            newest: of the versions that there are; 0: there is none.
        """
        if not self.is_enabled or self.version == "none":
            return NONE
        return newest if self.version == "latest" else self.version


AS_ACTIVATED = LearnedPolicy()


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What a client wants to have stored."""

    content: Any
    """The JSON that an optimizer has saved, unchecked."""
    form: str | None = None
    """``dspy`` or ``textgrad``; None: whichever it is."""
    source: str = ""
    """Name of the file."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A layer that is about to be stored."""

    layer: LearnedLayer
    form: Form
    made_with: str = ""
    """What wrote the file, such as ``dspy 3.4.1``; empty where it does not say."""
    source: str = ""
    """Name of the file, without its folder."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class LearnedVersion:
    """What is known of a stored layer."""

    agent: str
    version: int
    """1, 2, 3… of each agent of a workspace."""
    form: Form
    made_with: str
    digest: str
    """Empty once the layer was erased."""
    source: str
    note: str
    created_ms: int
    key_id: str
    user: str | None
    sizes: Json
    """How much is in the layer, which is read on its own."""

    def as_json(self) -> Json:
        return {
            "object": "learned_version",
            "agent": self.agent,
            "version": self.version,
            "form": self.form,
            "made_with": self.made_with or None,
            "digest": self.digest or None,
            "source": self.source or None,
            "note": self.note or None,
            "created_at": rfc3339(self.created_ms),
            "created_by": self.user or self.key_id,
            **self.sizes,
        }


@dataclass(frozen=True, slots=True)
class Activation:
    """Which versions the sessions that begin are given."""

    version: int = NONE
    trial_version: int | None = None
    """Another version, for a share of them."""
    share: float = 0.0
    """Share of the sessions that begin, 0 to 1."""
    history: tuple[int, ...] = ()
    """What was active before, the latest last."""

    def activated(self, version: int, share: float | None) -> "Activation":
        """After ``version`` was activated for a share of the sessions that begin; None: for all of them."""
        if share is not None:
            return Activation(self.version, version, share, self.history)
        if version == self.version:
            return Activation(version, history=self.history)
        return Activation(version, history=(*self.history, self.version)[-HISTORY:])

    def rolled_back(self) -> "Activation | None":
        """Without the last activation: the trial, else the version; None if there is none to take back."""
        if self.trial_version is not None:
            return Activation(self.version, history=self.history)
        return Activation(self.history[-1], history=self.history[:-1]) if self.history else None

    def without(self, version: int) -> "Activation":
        """After a version was erased: nothing leads back to it."""
        return replace(self, history=tuple(each for each in self.history if each != version))

    def version_for(self, lane: str) -> int:
        """What the session of a lane is given: the same whoever asks, until something else is activated.

        A lane draws anew for each trial.
        """
        if self.trial_version is not None and drawn(f"{lane}:{self.trial_version}") < self.share:
            return self.trial_version
        return self.version

    def share_of(self, version: int) -> float:
        """The share of the sessions that begin which are given a version, 0 to 1."""
        trial = self.share if self.trial_version is not None else 0.0
        return (trial if version == self.trial_version else 0.0) + (1 - trial if version == self.version else 0.0)


@dataclass(frozen=True, slots=True)
class LearnedPart:
    """What of a version is in a session's system text."""

    version: int
    signatures: int
    """With the tuned prompts."""
    demonstrations: int
    left_out_signatures: int = 0
    """For which there was no room."""
    left_out_demonstrations: int = 0

    def as_json(self) -> Json:
        """The session's ``learned`` (HTTP API)."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What a turn that has ended says of the version that it ran with."""

    status: TurnStatus
    usage: Usage
    judge_score: float | None
    """0 to 1; None: no judge gave one."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What came of the latest turns of a version."""

    turns: int = 0
    by_status: Json = field(default_factory=dict)
    judged: int = 0
    mean_score: float | None = None
    """Mean score of judges, 0 to 1; None: no turn was judged."""
    mean_tokens: float | None = None
    """Mean tokens of a turn."""
    mean_usd: float | None = None
    """Mean cost of a turn whose price is known; None: there is no such turn."""

    @classmethod
    def of(cls, outcomes: Iterable[TurnOutcome]) -> Self:
        """Count them, and average what they have."""
        ended = list(outcomes)
        scores = [each.judge_score for each in ended if each.judge_score is not None]
        costs = [float(each.usage.cost_usd) for each in ended if each.usage.cost_usd is not None]
        statuses = [each.status for each in ended]
        return cls(
            len(ended),
            {status: statuses.count(status) for status in dict.fromkeys(statuses)},
            len(scores),
            _mean(scores),
            _mean([each.usage.tokens for each in ended]),
            _mean(costs),
        )

    def as_json(self) -> Json:
        return {
            "turns": self.turns,
            **{name: self.by_status.get(name, 0) for name in ("completed", "failed", "incomplete", "cancelled")},
            "judged": self.judged,
            "mean_score": None if self.mean_score is None else round(self.mean_score, 4),
            "mean_tokens": None if self.mean_tokens is None else round(self.mean_tokens, 1),
            "mean_usd": None if self.mean_usd is None else round(self.mean_usd, 6),
        }


def _mean(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None
