"""What every embedding model is to the rest of Loom: texts in, one vector for each out.

Texts are cut to the model's window and sent in batches; ``Careful`` measures, repeats and spares a provider as the
models that answer turns do. Which adapter a name gets, ``runtime/embedders.py`` decides.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from loom_worker.core import metrics
from loom_worker.core.errors import LeftAlone, LoomError, Overloaded, ProviderFailed, StreamBroken, Transient
from loom_worker.core.text import longest
from loom_worker.core.values.chat import Usage
from loom_worker.guard.limits import Breakers
from loom_worker.llm.provider_errors import is_rate_limit
from loom_worker.llm.retry import RetryPolicy, outcome_of, pause_before

Vector = Sequence[float]
TextKind = Literal["document", "query"]
"""Some models embed what is looked for in another way than what is found."""
MayBeSent = Callable[[], bool]
"""False: the session whose texts these are is deleted."""

WINDOW_TOKENS = 8_000
"""Tokens of one text: OpenAI takes 8,191, Voyage 16,000 and more. What stands behind them in a longer text is not
found."""
BATCH_TEXTS = 64
BATCH_TOKENS = 60_000
"""Tokens of one request: Voyage's smallest limit is 120,000 as it counts, OpenAI's 300,000."""

POLICY = RetryPolicy()
"""As of models that answer turns."""


class InputRefused(ProviderFailed):
    """The provider refuses the texts of this request, or does not like how it is asked; others may be fine."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of a request's texts, in their order, and what they cost."""

    vectors: tuple[Vector, ...]
    usage: Usage


class Embedder(Protocol):
    """An embedding model: a provider's adapter, a local one, or a wrapper around another one."""

    @property
    def name(self) -> str:
        """``provider/model``: vectors of one name can be compared with each other."""

    def embed(self, texts: Sequence[str], *, kind: TextKind, timeout_s: float, may_be_sent: MayBeSent) -> Embedded:
        """A vector for each text, all with as many dimensions. Safe to use from many threads at once.

        Args:
            texts: at most BATCH_TEXTS, none of them blank.
            timeout_s: for all of it, retries included.
            may_be_sent: asked right before anything leaves this machine; False ends the call.

        Raises:
            Overloaded: the provider asks to wait.
            StreamBroken: no answer came in time, or none that is complete.
            InputRefused: the provider refuses these texts.
            ProviderFailed: the provider refuses whatever it is asked (key, model, address), or answers nonsense.
            Interrupted: this process was asked to stop meanwhile, or the texts may not be sent.
        """


def batches(texts: Sequence[str], count: Callable[[str], int]) -> Iterator[range]:
    """Places of texts that go into one request together, in their order; pure."""
    begin, tokens = 0, 0
    for at, text in enumerate(texts):
        needed = count(text)
        if at > begin and (at - begin == BATCH_TEXTS or tokens + needed > BATCH_TOKENS):
            yield range(begin, at)
            begin, tokens = at, 0
        tokens += needed
    if begin < len(texts):
        yield range(begin, len(texts))


def cut(text: str, count: Callable[[str], int], *, most_tokens: int = WINDOW_TOKENS) -> str:
    """The text, of one that is longer than a window its beginning; pure."""
    # No token is shorter than a byte, and counting takes far longer than measuring.
    if len(text.encode("utf-8", "surrogatepass")) <= most_tokens or count(text) <= most_tokens:
        return text
    return text[: longest(len(text), lambda chars: count(text[:chars]) <= most_tokens)]


def checked(vectors: Sequence[Vector], texts: int) -> tuple[Vector, ...]:
    """The vectors of an answer, if they can be those of so many texts.

    Raises:
        ProviderFailed: a vector is missing, empty, of another length than the others, or has no finite numbers.
    """
    lengths = {len(vector) for vector in vectors}
    if len(vectors) != texts or len(lengths) != 1 or lengths == {0}:
        raise ProviderFailed("The embedding provider answered with other vectors than it was asked for.")
    if not all(math.isfinite(number) for vector in vectors for number in vector):
        raise ProviderFailed("The embedding provider answered with numbers that are none.")
    return tuple(vectors)


class Careful:
    """An Embedder that asks another one with retries, while the circuit breaker of its provider allows it."""

    def __init__(
        self,
        embedder: Embedder,
        breakers: Breakers,
        *,
        pause: Callable[[float, Callable[[], bool]], None],
        chance: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        policy: RetryPolicy = POLICY,
    ) -> None:
        """Args: pause, chance, clock: as of Retrying (retry.py)."""
        self._embedder = embedder
        self._breakers = breakers
        self._breaker = f"embeddings:{embedder.name}"
        self._pause = pause
        self._chance = chance
        self._clock = clock
        self._policy = policy
        self.source = ""
        """Whose failures the breaker counts once; empty: each text's."""

    @property
    def name(self) -> str:
        """The wrapped embedder's name."""
        return self._embedder.name

    def embed(self, texts: Sequence[str], *, kind: TextKind, timeout_s: float, may_be_sent: MayBeSent) -> Embedded:
        """Raises LeftAlone, without any request, while the breaker is open."""
        end_s, n = self._clock() + timeout_s, 0
        while True:
            try:
                return self._tried(texts, kind, end_s - self._clock(), may_be_sent)
            except (Overloaded, StreamBroken) as error:
                wait_s = pause_before(error, n, policy=self._policy, chance=self._chance)
                if wait_s is None or self._clock() + wait_s >= end_s:
                    raise
            n += 1
            self._pause(wait_s, lambda: not may_be_sent())

    def _tried(self, texts: Sequence[str], kind: TextKind, timeout_s: float, may_be_sent: MayBeSent) -> Embedded:
        permit = self._breakers.permit(self._breaker, probe_s=timeout_s + 1)
        if permit.open_for_s is not None:
            text = f"The embedding provider of {self.name} keeps failing and is left alone for another"
            raise LeftAlone(f"{text} {math.ceil(permit.open_for_s)} s.", permit.open_for_s)
        report: Callable[[str, str | None], None] = self._breakers.abandoned
        began_s, outcome = self._clock(), "given_up"
        try:
            found = self._embedder.embed(texts, kind=kind, timeout_s=timeout_s, may_be_sent=may_be_sent)
            outcome, report = "ok", self._breakers.succeeded
            return found
        except LoomError as error:
            outcome = outcome_of(error)
            if isinstance(error, ProviderFailed):
                report = self._breakers.succeeded  # it answered, if with a refusal
            elif isinstance(error, Transient) and not (isinstance(error, Overloaded) and is_rate_limit(error)):
                report = partial(self._breakers.failed, source=self.source or "\n".join(texts))  # they may be the cause
            raise
        finally:
            report(self._breaker, permit.token)
            metrics.LLM_REQUESTS.observe(self._clock() - began_s, self.name, outcome)


def sourced(source: str, embedder: Embedder) -> Embedder:
    """The same embedder, whose failures a breaker counts once for this session or run."""
    if isinstance(embedder, Careful):
        embedder = copy(embedder)
        embedder.source = source
    return embedder
