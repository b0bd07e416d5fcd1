"""Ranking by a model that reads the candidates; its failure leaves them as they were."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loom_worker.core.errors import LoomError
from loom_worker.core.values.budgets import Reservation
from loom_worker.core.values.chat import ChatMessage, Reply, Request, Shape
from loom_worker.core.values.json import untagged
from loom_worker.core.values.tools import Caller
from loom_worker.llm.model import Model, OnBudget, Revocable, whole_reply

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RankingPrompt:
    """What a model is asked to rank; no text of a question or candidate can end the data it stands in."""

    action: str
    """What is done, for the log: ``patterns are ranked``."""
    system: str
    question: tuple[str, str]
    """Its tag, and what is looked for."""
    candidates: tuple[str, Sequence[Mapping[str, object]]]
    """Their tag, and what the model reads of each."""
    max_tokens: int
    """Tokens of the answer, which may have the shape in words, too."""
    shape: Shape

    def request(self, *, is_given_up: Callable[[], bool] = lambda: False) -> Request:
        """The request for the model.

        Args:
            is_given_up: asked during the call; True ends it.
        """
        (asked, question), (listed, candidates) = self.question, self.candidates
        data = "\n".join(untagged(dict(each)) for each in candidates)
        return Request(
            self.system,
            (ChatMessage("user", f"<{asked}>{untagged(question)}</{asked}>\n<{listed}>\n{data}\n</{listed}>"),),
            shape=self.shape,
            max_tokens=self.max_tokens,
            cache_marks=False,
            is_given_up=is_given_up,
        )


class SessionAccounts(Protocol):
    """The sessions on whose behalf a model ranks."""

    def is_there(self, lane: str) -> bool:
        """Whether the session of a lane is not deleted; what its messages say is sent nowhere else."""

    def on_budget(self, model: Model, caller: Caller) -> OnBudget:
        """The model, paid for by the session's budgets."""

    def charge(self, caller: Caller, reply: Reply, held: Sequence[Reservation]) -> None:
        """Enter what an answer cost, also one that is of no use; LoomError: it could not be entered.

        Args:
            held: what was set aside for it.
        """


@dataclass(frozen=True, slots=True)
class Reranker:
    """Asks a model once for each ranking."""

    model: Model
    accounts: SessionAccounts
    deadline_s: float
    """For the model, its retries included."""
    clock: Callable[[], float] = field(default=time.monotonic)

    def answer(self, prompt: RankingPrompt, caller: Caller) -> Reply | None:
        """The model's answer; None if it failed or was too late, which is logged."""
        until_s = self.clock() + self.deadline_s
        paid = self.accounts.on_budget(self.model, caller)
        model = Revocable(paid, lambda: self.accounts.is_there(caller.lane))
        try:
            reply = whole_reply(model, prompt.request(is_given_up=lambda: self.clock() > until_s))
            self.accounts.charge(caller, reply, paid.held)
        except LoomError as error:  # Interrupted too: a worker that stops can still go on without the ranking
            log.warning("%s without the model: %s", prompt.action, error)
            return None
        return reply
