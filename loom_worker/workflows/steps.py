"""What a pattern is written in: it asks agents and people, and goes on with their answers.

A pattern is a generator that yields what it wants to know and is sent what is known. It reads like a program that runs
once, and is played again from the beginning each time something new is known (``decide.py``): what was asked before is
in the run's journal, so nothing is asked twice. It must therefore be pure: the same answers lead to the same questions.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal

from loom_worker.core.errors import LoomError
from loom_worker.core.values.json import Json
from loom_worker.core.values.runs import RunStatus, StageRole
from loom_worker.core.values.workflows import ApprovalGate


@dataclass(frozen=True, slots=True)
class Question:
    """A question to an agent, which becomes a turn."""

    key: str
    """Names it within its run: ``stages.0``, ``rounds.1.agents.2``; the same whenever the pattern is played."""
    agent_id: str
    prompt: str
    role: StageRole = "stage"
    name: str | None = None
    """The stage's in the file; None where it has none."""
    conversation: str = ""
    """Questions of one conversation follow each other in one session; empty: one of its own, by its key."""
    timeout_s: float | None = None
    """For how long it may take from the moment it is asked."""
    response_format: Json | None = None  # as of NewTurn

    @property
    def conversation_key(self) -> str:
        """The name of its conversation within the run."""
        return self.conversation or self.key


@dataclass(frozen=True, slots=True)
class Gate:
    """A question to a person."""

    key: str
    agent_id: str
    """Whose output it is about."""
    prompt: str
    """What the person is shown."""
    policy: ApprovalGate


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """What came of one question."""

    text: str = ""
    decision: Literal["approve", "reject", "revise"] | None = None
    """Decision of a person; None: it is an agent's answer."""
    reason: str = ""
    """What the person said to it."""
    is_expired: bool = False
    """True: nobody answered in time, and the file decided."""


Steps = Generator[Sequence[Question] | Gate, Sequence[StageAnswer], str]
"""A pattern, or a part of one: what it yields it wants to know, all of it before it goes on; it ends with a text."""

Answers = Generator[Sequence[Question] | Gate, Sequence[StageAnswer], tuple[str, ...]]
"""A part of a pattern that ends with several texts."""


class Stopped(LoomError):
    """A pattern cannot go on: the run ends with this status, reason and message."""

    def __init__(self, status: RunStatus, reason: str, message: str, *, stage: str, output: str | None = None):
        super().__init__(status, reason, message, stage, output)

    def __str__(self) -> str:
        return self.message

    @property
    def status(self) -> RunStatus:
        """How the run ends."""
        status: RunStatus = self.args[0]
        return status

    @property
    def reason(self) -> str:
        """In a word."""
        return str(self.args[1])

    @property
    def message(self) -> str:
        """In a sentence."""
        return str(self.args[2])

    @property
    def stage(self) -> str:
        """The key of what must be done again for the run to go on; everything below it, too."""
        return str(self.args[3])

    @property
    def output(self) -> str | None:
        """What the run has to show all the same."""
        output: str | None = self.args[4]
        return output


def ask_all(asks: Sequence[Question]) -> Answers:
    """Ask agents side by side; their answers, in the order of the questions."""
    answers = yield asks
    return tuple(answer.text for answer in answers)


def ask(question: Question) -> Steps:
    """Ask one agent."""
    answers = yield (question,)
    return answers[0].text


def decided(gate: Gate) -> Generator[Sequence[Question] | Gate, Sequence[StageAnswer], StageAnswer]:
    """Ask a person."""
    answers = yield gate
    return answers[0]
