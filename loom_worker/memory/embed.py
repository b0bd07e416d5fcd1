"""The messages of a session get their vectors, a batch at a time, behind its turns.

A worker of the queue ``summary`` does it once it has the right to compress the session's memory (compress.py). Each
batch is one request and one transaction, which counts only if the session was embedded just as far when it began.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from loom_worker.core import crash_points
from loom_worker.core.errors import BudgetSpent, Interrupted, LoomError, Transient, Unavailable
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.budgets import Payer, Settlement
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import Session
from loom_worker.llm.embeddings import (
    BATCH_TEXTS,
    WINDOW_TOKENS,
    Embedded,
    Embedder,
    InputRefused,
    Vector,
    batches,
    cut,
    sourced,
)
from loom_worker.llm.model import BudgetMeter
from loom_worker.store.budgets import Budgets
from loom_worker.store.ledger import Charge
from loom_worker.store.vectors import MessageVectors, Unembedded

log = logging.getLogger(__name__)

STEPS = 20
"""Batches of a session before others have their turn: some thousand messages, when a long session gets its first."""
AGAIN_MS = 30_000
"""When a provider that cannot be reached is asked again; shorter than AHEAD_MS (store/memory.py)."""
MOST_CHARS = 8 * WINDOW_TOKENS
"""Read of each message: no tokenizer packs more into its window."""
HARMLESS = "Loom"
"""A text that any model can embed: whether a refusal was the text's fault."""


@dataclass(frozen=True, slots=True)
class EmbeddingRules:
    """By what the messages of a session are embedded."""

    embedder: Embedder
    count: Callable[[str], int]
    """The tokens of a text, never too few."""
    agent_budget: Json | None = None
    timeout_s: float = 30.0
    """Time of one request, its retries included."""


class EmbeddingAgents(Protocol):
    """Where the rules of a session's agent are found (``runtime/embedders.py``: Embedders)."""

    def rules(self, session: Session) -> EmbeddingRules | None:
        """What the session's messages are embedded by; None: its agent's file enables no embeddings."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a session was embedded."""

    messages: int = 0
    must_go_on: bool = False
    """True: there are more, and other sessions wait."""
    again_ms: int | None = None
    """When to try once more, since the provider cannot be reached now; milliseconds since 1970."""


DONE = Progress()


class NoVectors:
    """No session has vectors."""

    def embed(self, session: Session) -> Progress:
        return DONE


@dataclass(frozen=True, slots=True)
class MessageEmbedding:
    """Embeds the messages of sessions."""

    agents: EmbeddingAgents
    vectors: MessageVectors
    budgets: Budgets
    stopping: Stopping
    clock_ms: Callable[[], int] = field(default=now_ms)

    def embed(self, session: Session) -> Progress:
        """Embed what has no vector yet, at most STEPS batches of it. A failure of the provider is logged.

        Raises:
            Unavailable: the database did not answer.
        """
        rules = self.agents.rules(session)
        if rules is None:
            return DONE
        done, ids = 0, {"session": session.id, "workspace": session.workspace}
        try:
            for _ in range(STEPS):
                if self.stopping.is_asked:
                    return Progress(done, must_go_on=True)
                count = self._batch(session, rules)
                if not count:
                    return Progress(done)
                done += count
            return Progress(done, must_go_on=True)
        except BudgetSpent as error:
            log.info("messages are not embedded: %s", error, extra=ids)
            return Progress(done)
        except Interrupted:
            return Progress(done, must_go_on=True)
        except Unavailable:
            raise
        except Transient as error:
            log.warning("messages are embedded later: %s", error, extra=ids)
            return Progress(done, again_ms=self.clock_ms() + AGAIN_MS)
        except LoomError as error:  # whoever mends it need do nothing more: the next turn's end embeds all that is left
            log.warning("messages cannot be embedded: %s", error, extra=ids)
            return Progress(done)

    def _batch(self, session: Session, rules: EmbeddingRules) -> int:
        """Embed the next messages, as many as go into one request; how many were done, 0 if none are left."""
        name = rules.embedder.name
        due = self.vectors.unembedded(session.lane, name, limit=BATCH_TEXTS, most_chars=MOST_CHARS)
        if not due.texts:
            return 0
        numbers = list(due.texts)
        texts = [cut(due.texts[n], rules.count) for n in numbers]
        first = next(batches(texts, rules.count))
        numbers, texts = numbers[: len(first)], texts[: len(first)]
        found, charge = self._embedded(session, rules, dict(zip(numbers, texts, strict=True)))
        crash_points.reached("summary.embedded")
        step = Unembedded(due.after_n, numbers[-1], dict.fromkeys(numbers, ""))
        is_ours = self.vectors.add(session.lane, name, step, found, charge=charge, now_ms=self.clock_ms())
        return len(numbers) if is_ours else 0

    def _embedded(
        self, session: Session, rules: EmbeddingRules, texts: Mapping[int, str]
    ) -> tuple[Mapping[int, Vector], Charge]:
        """The vectors of these messages by their numbers, and what they cost; one that is refused has none."""
        payer = Payer(session.workspace, session.lane, session.agent, rules.agent_budget)
        tokens = sum(map(rules.count, texts.values()))
        meter = BudgetMeter(self.budgets, payer, input_tokens=tokens, clock_ms=self.clock_ms)
        meter.reserve(rules.embedder.name, 0)
        rules = replace(rules, embedder=sourced(payer.source, rules.embedder))
        asker = _Asker(rules, lambda: self.vectors.is_there(session.lane))
        try:
            found, usage = asker.vectors(texts)
        except LoomError:
            meter.refund()
            raise
        settlement = Settlement(payer, usage.amount(), () if meter.held is None else (meter.held,))
        names = (session.workspace, session.id, session.agent, rules.embedder.name)
        return found, Charge(*names, usage, kind="embedding", settlement=settlement)


@dataclass(frozen=True, slots=True)
class _Asker:
    rules: EmbeddingRules
    may_be_sent: Callable[[], bool]

    def vectors(self, texts: Mapping[int, str]) -> tuple[Mapping[int, Vector], Usage]:
        """The vectors of some texts, and what they cost.

        A text that the provider refuses must not keep all behind it from being embedded. So the texts of a refused
        request are sent one by one, and one is given up only once another text was accepted: then the text is at fault,
        and not the model's name or the address.
        """
        try:
            answer = self._embed(list(texts.values()))
            return dict(zip(texts, answer.vectors, strict=True)), answer.usage
        except InputRefused:
            found, usage = dict[int, Vector](), self._embed([HARMLESS]).usage
        for n, text in texts.items():
            try:
                answer = self._embed([text])
            except InputRefused as error:
                log.warning("message %d gets no vector: %s", n, error)
                continue
            found[n] = answer.vectors[0]
            usage += answer.usage
        return found, usage

    def _embed(self, texts: Sequence[str]) -> Embedded:
        timeout_s = self.rules.timeout_s
        return self.rules.embedder.embed(texts, kind="document", timeout_s=timeout_s, may_be_sent=self.may_be_sent)
