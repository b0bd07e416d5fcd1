"""A model behind a circuit breaker: a provider that fails again and again is not asked for a while.

What is not asked is refused at once as Overloaded with the time left, so a turn parks until then.
"""

import math
from collections.abc import Iterator
from typing import Protocol

from loom_worker.core.errors import LeftAlone, Overloaded, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import Reply, ReplyEvent, Request
from loom_worker.llm.anthropic_errors import is_rate_limit
from loom_worker.llm.model import Model, NotSent


class Verdict(Protocol):
    """Whether a call may be made."""

    @property
    def open_for_s(self) -> float | None:
        """Not None: do not call for so many seconds."""

    @property
    def token(self) -> str | None:
        """Not None: the call is a probe, to be told of with this."""


class Breaker(Protocol):
    """The circuit breakers of all workers; each call that look allows is told of once."""

    def look(self, name: str, *, probe_s: float) -> Verdict:
        """Ask whether to call; a probe that was not heard of for probe_s is given up."""

    def succeeded(self, name: str, token: str | None) -> None:
        """The provider answered."""

    def failed(self, name: str, token: str | None) -> None:
        """It did not."""

    def let_go(self, name: str, token: str | None) -> None:
        """The call says nothing of the provider."""


class Guarded:
    """A Model that asks another Model while the breaker of its provider allows it."""

    def __init__(self, model: Model, breaker: Breaker, *, provider: str, probe_s: float) -> None:
        """Wrap a model. Put it inside Retrying: each try counts, and an open breaker ends the tries.

        Args:
            provider: anthropic, bedrock or ollama; breakers are per provider and model.
            probe_s: the longest a call may take, and a little more.
        """
        self._model = model
        self._breaker = breaker
        self._provider = provider
        self._name = f"llm:{provider}:{model.name}"
        self._probe_s = probe_s

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """See Model.reply.

        Raises:
            LeftAlone: without any request, while the breaker is open.
        """
        verdict = self._breaker.look(self._name, probe_s=self._probe_s)
        if verdict.open_for_s is not None:
            raise LeftAlone(self._refusal(verdict.open_for_s), verdict.open_for_s)
        tell = self._breaker.let_go  # cancelled, closed early, or a bug of ours: that says nothing of the provider
        try:
            for event in self._model.reply(request):
                if isinstance(event, Reply):
                    tell = self._breaker.succeeded
                yield event
        except (StreamBroken, Overloaded) as error:
            is_well = isinstance(error, Overloaded) and is_rate_limit(error)
            tell = self._breaker.let_go if is_well else self._breaker.failed
            raise
        except NotSent:
            raise
        except ProviderFailed:
            tell = self._breaker.succeeded  # it answered, if with a refusal
            raise
        finally:
            tell(self._name, verdict.token)

    def _refusal(self, open_for_s: float) -> str:
        wait_s = math.ceil(open_for_s)
        return f"The model's provider ({self._provider}) keeps failing and is left alone for another {wait_s} s."
