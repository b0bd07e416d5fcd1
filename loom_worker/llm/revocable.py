"""A model that is asked only while what it is asked about is there: nothing of a deleted session is sent any more."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from loom_worker.core.errors import Interrupted
from loom_worker.core.values.chat import ReplyEvent, Request
from loom_worker.llm.model import Model

LOOK_EVERY_S = 0.5
"""How often a call under way looks whether anybody may still want its reply."""


class Revocable:
    """A Model that asks another Model."""

    def __init__(self, model: Model, is_there: Callable[[], bool]) -> None:
        """Wrap a model.

        Args:
            is_there: asks the database; once just before each sending, and every LOOK_EVERY_S while a reply comes in.
        """
        self._model = model
        self._is_there = is_there

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """See Model.reply.

        Raises:
            Interrupted: also where it is gone; then nothing was sent, or the call was given up.
        """
        if not self._is_there():
            raise Interrupted("Nothing was sent: the session is deleted.")
        look_at_s, is_gone = time.monotonic() + LOOK_EVERY_S, False

        def is_given_up() -> bool:
            nonlocal look_at_s, is_gone
            if not is_gone and time.monotonic() >= look_at_s:
                is_gone = not self._is_there()
                look_at_s = time.monotonic() + LOOK_EVERY_S
            return is_gone or request.is_given_up()

        yield from self._model.reply(replace(request, may_be_sent=self._is_there, is_given_up=is_given_up))
