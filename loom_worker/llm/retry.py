"""Trying a call again when that may help, within bounds that the caller sets."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loom_worker.core.errors import Overloaded, StreamBroken, Transient
from loom_worker.core.values.chat import ReplyEvent, Request, Restarted, TextDelta
from loom_worker.llm.model import Model


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often to try."""

    tries: int = 3
    first_wait_s: float = 0.5
    """The longest first wait; each further one may be twice as long."""
    max_wait_s: float = 5.0
    """The longest single wait; a provider that asks for more gets its request from the caller, who parks the turn."""
    total_s: float = 240.0
    """No try begins later than this after the first: two whole calls at the default deadline."""


class Retrying:
    """A Model that tries another Model's calls again."""

    def __init__(
        self,
        model: Model,
        *,
        pause: Callable[[float, Callable[[], bool]], None],
        chance: Callable[[], float],
        clock: Callable[[], float],
        patience: Patience = Patience(),
    ) -> None:
        """Wrap a model.

        Args:
            pause: waits so many seconds, unless the request is given up meanwhile: then it raises Interrupted, which
                ends the call.
            chance: a random number in 0-1, for the jitter.
            clock: monotonic seconds.
        """
        self._model = model
        self._pause = pause
        self._chance = chance
        self._clock = clock
        self._patience = patience

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """See Model.reply: Overloaded and StreamBroken are tried again, anything else is raised at once.

        Raises:
            Overloaded: the tries are used up, or the provider wants a longer wait than max_wait_s.
            StreamBroken: the tries or the time are used up.
        """
        end_s = self._clock() + self._patience.total_s
        for n in range(self._patience.tries):
            has_spoken = False
            try:
                for event in self._model.reply(request):
                    has_spoken = has_spoken or isinstance(event, TextDelta)
                    yield event
                return
            except (Overloaded, StreamBroken) as error:
                wait_s = self._wait_s(error, n)
                if wait_s is None or self._clock() + wait_s >= end_s:
                    raise
                failure = error
            if has_spoken:
                yield Restarted(str(failure))
            request.watch.failed(failure, wait_s)
            self._pause(wait_s, request.is_given_up)

    def _wait_s(self, error: Transient, n: int) -> float | None:
        """Seconds before the next try, None if there is none to be."""
        if n + 1 >= self._patience.tries:
            return None
        wished_s = error.retry_after_s if isinstance(error, Overloaded) else None
        if wished_s is not None and wished_s > self._patience.max_wait_s:
            return None
        longest_s = min(self._patience.first_wait_s * 2.0**n, self._patience.max_wait_s)
        return max(wished_s or 0.0, self._chance() * longest_s)
