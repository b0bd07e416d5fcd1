"""Takes down from when to when a model is asked for a reply, for the turn's trace."""

from collections.abc import Callable
from dataclasses import replace

from loom_worker.core.errors import LoomError
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.json import Json
from loom_worker.core.values.traces import CallTimes, Interval, Try

TRIES = 20
"""Of one reply; a client that retries without end must not fill the journal."""
ERROR_CHARS = 200


class CallRecorder:
    """The times of one reply after the other, of one run of a turn. For the turn's thread alone."""

    def __init__(self, fence: int, *, provider: str, model: str, clock_us: Callable[[], int] = now_us) -> None:
        """Args: fence: of the run; provider, model: that are asked."""
        self._none = CallTimes(fence, provider, model)
        self._clock_us = clock_us
        self.begin()

    def begin(self) -> None:
        """Another reply is needed."""
        self._times = self._none
        self._asked_us: int | None = None

    def built(self, began_us: int, tokens: int) -> None:
        """The context is built; it took from then until now."""
        self._times = replace(self._times, built=Interval(began_us, self._clock_us()), tokens=tokens)

    def asked(self) -> None:
        """A request goes out."""
        self._end_try()
        self._asked_us = self._clock_us()

    def text(self) -> None:
        """A piece of text came."""
        if self._times.first_text_us is None:
            self._times = replace(self._times, first_text_us=self._clock_us())

    def failed(self, error: LoomError) -> None:
        """The request under way failed."""
        self._end_try(type(error).__name__, str(error)[:ERROR_CHARS])
        self._times = replace(self._times, first_text_us=None)

    def take(self) -> Json:
        """What is known by now, for the step that it led to; it will not be ``left`` any more."""
        self._end_try()
        times = self._times
        self.begin()
        return times.as_json()

    def left(self) -> Json | None:
        """What led to no step; None: nothing was asked."""
        self._end_try()
        return self._times.as_json() if self._times.tries or self._times.built else None

    def _end_try(self, error_type: str | None = None, error: str = "") -> None:
        if self._asked_us is None:
            return
        one = Try(Interval(self._asked_us, self._clock_us()), error_type, error)
        self._times = replace(self._times, tries=(*self._times.tries, one)[-TRIES:])
        self._asked_us = None
