"""One judge looks at one answer: whatever comes of it is an Evaluation."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loom_worker.core.errors import Interrupted, JudgeFailed, LoomError, Unavailable
from loom_worker.core.values.budgets import Reservation
from loom_worker.core.values.chat import Reply, Usage
from loom_worker.core.values.judges import PanelMember
from loom_worker.core.values.tools import Caller
from loom_worker.judge import checks, llm
from loom_worker.judge.checks import Opinion
from loom_worker.judge.grounded import grounded
from loom_worker.judge.llm import Case
from loom_worker.judge.python_judges import PythonJudges
from loom_worker.llm.model import Model, OnBudget, whole_reply
from loom_worker.memory.layers import Count

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """The model that an agent's LLM judges ask."""

    model: Model
    count: Count
    budget_tokens: int
    """What one request may hold, as ``count`` counts."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a judge said, or why it could not, and what that cost."""

    opinion: Opinion | None
    error: str | None = None
    model: str | None = None
    """The model that was asked."""
    usage: Usage = field(default_factory=Usage)
    held: Sequence[Reservation] = ()
    """What budgets have set aside for it."""


@dataclass(frozen=True, slots=True)
class Judging:
    """What the judges of one turn work with."""

    functions: PythonJudges
    folder: Path
    """That files of functions are relative to."""
    caller: Caller
    model: JudgeModel | None
    """None: there is no model that understands an answer."""
    paid: OnBudget | None
    """The same, as budgets see it."""

    def evaluate(self, member: PanelMember, case: Case) -> Evaluation:
        """Have a judge look at an answer.

        Raises:
            Interrupted: the worker stops, or the session was deleted; another worker may try.
            Unavailable: the database did not answer; no model was asked.
        """
        try:
            if member.type == "llm":
                return self._asked(member, case)
            return Evaluation(self._opinion(member, case))
        except (Interrupted, Unavailable):
            raise
        except LoomError as error:
            # What was set aside for a call that broke stays so: nobody knows whether the provider was paid.
            return Evaluation(None, str(error))
        except Exception as error:  # whatever an answer makes a judge run into ends as a verdict, and holds no turn up
            log.exception("a judge failed unforeseen", extra={"turn": case.turn_id})
            return Evaluation(None, f"The judge failed: {type(error).__name__}.")

    def _opinion(self, member: PanelMember, case: Case) -> Opinion:
        match member.type:
            case "contains":
                return checks.contains(case.answer, member.criteria)
            case "regex":
                return checks.matches(case.answer, member.criteria)
            case "json_schema":
                return self.functions.fits(case.answer, member.criteria, self.caller, timeout_s=member.timeout_s)
            case "grounded":
                results = [text for _, text in case.results]
                return grounded(
                    case.answer, results, member.criteria, question=case.question, cannot_tell=member.cannot_tell
                )
            case _:
                return self.functions.opinion(member, self.folder, case, self.caller)

    def _asked(self, member: PanelMember, case: Case) -> Evaluation:
        if self.model is None:
            raise JudgeFailed("There is no model to judge with: the demo model cannot. Name one in judge_llm.")
        reply = self._reply(self.model, member, case)
        paid = (reply.model, reply.usage, self.paid.held if self.paid else ())
        try:
            return Evaluation(llm.opinion(reply), None, *paid)
        except JudgeFailed as error:
            return Evaluation(None, str(error), *paid)

    def _reply(self, model: JudgeModel, member: PanelMember, case: Case) -> Reply:
        until_s = time.monotonic() + member.timeout_s
        asked = llm.request(
            case,
            str(member.criteria),
            budget_tokens=model.budget_tokens,
            count=model.count,
            is_given_up=lambda: time.monotonic() > until_s,
        )
        try:
            return whole_reply(model.model, asked)
        except Interrupted as error:
            if time.monotonic() <= until_s:
                raise
            raise JudgeFailed(f"No verdict within {member.timeout_s:g} s.") from error
