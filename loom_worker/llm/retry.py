"""Models that repeat failed calls, that stop calling a provider that keeps failing, and that measure its requests."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from loom_worker.core import metrics
from loom_worker.core.errors import (
    LeftAlone,
    LoomError,
    Overloaded,
    PromptTooLong,
    ProviderFailed,
    StreamBroken,
    Transient,
)
from loom_worker.core.values.chat import Reply, ReplyEvent, Request, Restarted, TextDelta, ThinkingDelta
from loom_worker.guard.limits import Breakers
from loom_worker.llm.model import Model, NotSent
from loom_worker.llm.provider_errors import is_rate_limit


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long and how often to try."""

    tries: int = 3
    first_wait_s: float = 0.5
    """The longest first wait; each further one may be twice as long."""
    max_wait_s: float = 5.0
    """The longest single wait. If a provider asks for more, the caller gets its error and parks the turn."""
    total_s: float = 240.0
    """No try begins later than this after the first: two whole calls at the default deadline."""


class Retrying:
    """A Model that repeats another Model's failed calls."""

    def __init__(
        self,
        model: Model,
        *,
        pause: Callable[[float, Callable[[], bool]], None],
        chance: Callable[[], float],
        clock: Callable[[], float],
        policy: RetryPolicy = RetryPolicy(),
    ) -> None:
        """Wrap a model.

        Args:
            pause: waits so many seconds, and raises Interrupted, which ends the call, once its second argument says
                that the reply is no longer wanted.
            chance: a random number in 0-1, for the jitter.
            clock: monotonic seconds.
        """
        self._model = model
        self._pause = pause
        self._chance = chance
        self._clock = clock
        self._policy = policy

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Overloaded and StreamBroken are tried again, anything else is raised at once.

        Raises:
            Overloaded: the tries are used up, or the provider wants a longer wait than max_wait_s.
            StreamBroken: the tries or the time are used up.
        """
        end_s = self._clock() + self._policy.total_s
        for n in range(self._policy.tries):
            has_text = False
            try:
                for event in self._model.reply(request):
                    has_text = has_text or isinstance(event, TextDelta | ThinkingDelta)
                    yield event
                return
            except (Overloaded, StreamBroken) as error:
                wait_s = pause_before(error, n, policy=self._policy, chance=self._chance)
                if wait_s is None or self._clock() + wait_s >= end_s:
                    raise
                failure = error
            if has_text:
                yield Restarted(str(failure))
            request.watch.failed(failure, wait_s)
            self._pause(wait_s, request.is_given_up)


def pause_before(error: Transient, n: int, *, policy: RetryPolicy, chance: Callable[[], float]) -> float | None:
    """Seconds before the next try, None if there is none.

    Args:
        n: of the try that failed, from 0.
    """
    if n + 1 >= policy.tries or isinstance(error, LeftAlone):
        return None
    asked_s = error.retry_after_s if isinstance(error, Overloaded) else None
    if asked_s is not None and asked_s > policy.max_wait_s:
        return None
    longest_s = min(policy.first_wait_s * 2.0**n, policy.max_wait_s)
    return max(asked_s or 0.0, chance() * longest_s)


class Guarded:
    """A Model that asks another Model while the circuit breaker of its provider allows it.

    While the breaker is open, a request is refused at once, with the time that is left: the turn parks until then.
    """

    def __init__(self, model: Model, breakers: Breakers, *, provider: str, probe_s: float) -> None:
        """Wrap a model. Put it inside Retrying: an open breaker ends the tries; those of one session count once.

        Args:
            provider: anthropic, bedrock or ollama; there is a breaker for each provider and model.
            probe_s: the longest a call may take, and a little more.
        """
        self._model = model
        self._breakers = breakers
        self._provider = provider
        self._breaker, self._told_as = f"llm:{provider}:{model.name}", f"{model.name} ({provider})"
        self._probe_s = probe_s

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Raises LeftAlone, without any request, while the breaker is open."""
        permit = self._breakers.permit(self._breaker, probe_s=self._probe_s)
        if permit.open_for_s is not None:
            raise LeftAlone(
                f"The model's provider ({self._provider}) keeps failing and is left alone for another "
                f"{math.ceil(permit.open_for_s)} s.",
                permit.open_for_s,
            )
        report: Callable[[str, str | None], None] = self._breakers.abandoned  # cancelled, or a bug: says nothing of it
        try:
            for event in self._model.reply(request):
                if isinstance(event, Reply):
                    report = self._breakers.succeeded
                    self._breakers.tell_answer(self._told_as)
                yield event
        except (StreamBroken, Overloaded) as error:
            self._breakers.tell_answer(self._told_as, str(error))
            is_well = isinstance(error, Overloaded) and is_rate_limit(error)
            report = self._breakers.abandoned if is_well else partial(self._breakers.failed, source=request.source)
            raise
        except ProviderFailed as error:
            if not isinstance(error, PromptTooLong):
                self._breakers.tell_answer(self._told_as, str(error))
            if not isinstance(error, NotSent):
                report = self._breakers.succeeded  # it answered, if with a refusal
            raise
        finally:
            report(self._breaker, permit.token)


class Measured:
    """Wraps an adapter, inside circuit breaker and retries: each try counts, and only what was really sent."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        began_s = time.perf_counter()
        took_s: float | None = None
        has_text = False
        outcome = "given_up"  # closed early, or interrupted
        try:
            for event in self._model.reply(request):
                if isinstance(event, Reply):
                    took_s, outcome = time.perf_counter() - began_s, "ok"
                elif not has_text and isinstance(event, TextDelta | ThinkingDelta):
                    has_text = True
                    metrics.LLM_FIRST_TOKEN.observe(time.perf_counter() - began_s, self.name)
                yield event
        except LoomError as error:
            outcome = outcome_of(error)
            raise
        finally:
            # Up to the reply: what is done with it before the iterator is closed takes no time of the provider's.
            took_s = time.perf_counter() - began_s if took_s is None else took_s
            metrics.LLM_REQUESTS.observe(took_s, self.name, outcome)


def outcome_of(error: LoomError) -> str:
    """How a request ended, as the metric names it."""
    match error:
        case Overloaded():
            return "rate_limited" if is_rate_limit(error) else "overloaded"
        case StreamBroken():
            return "broken"
        case PromptTooLong():
            return "too_long"
        case ProviderFailed():
            return "refused"
        case _:
            return "given_up"
