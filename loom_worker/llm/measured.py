"""A Model that measures another one: how long each request to the provider took, and how it ended."""

import time
from collections.abc import Iterator

from loom_worker.core import metrics
from loom_worker.core.errors import LoomError, Overloaded, PromptTooLong, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import Reply, ReplyEvent, Request, TextDelta
from loom_worker.llm.anthropic_errors import is_rate_limit
from loom_worker.llm.model import Model


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
                elif not has_text and isinstance(event, TextDelta):
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
