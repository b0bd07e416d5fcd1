"""What every model is to the rest of Loom, and two models that choose when and whom to ask."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from loom_worker.core.errors import Interrupted, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import Reply, ReplyEvent, Request

log = logging.getLogger(__name__)

CHECK_EVERY_S = 0.5
"""How often a running call checks whether its reply is still wanted."""


class NotSent(ProviderFailed):
    """The request could not even be written, so this says nothing about the provider."""


class Model(Protocol):
    """A language model: a provider's adapter, the scripted model, or a wrapper around another model."""

    @property
    def name(self) -> str:
        """The model's name, as prices and token factors know it."""

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Answer one request; nothing happens before the first ``next``.

        Yields text as it arrives (TextDelta), perhaps a Restarted that takes back the deltas before it, and exactly
        one Reply, as the last event; its text is the join of the deltas since the last Restarted. An iterator that
        ends without a Reply has raised. Closing the iterator ends the call and its connection. Safe to use from many
        threads at once.

        Raises:
            Overloaded: the provider asks to wait; ``retry_after_s`` says how long, if it said so.
            StreamBroken: the reply was cut, malformed or too late; nothing of it counts.
            ProviderFailed: the provider refuses this request for good; NotSent: it cannot be sent at all.
            Interrupted: this process was asked to stop meanwhile, or the reply is no longer wanted.
        """


def whole_reply(model: Model, request: Request) -> Reply:
    """Ask, and skip what streams meanwhile.

    Raises:
        LoomError: as Model.reply; StreamBroken also if no reply came; ProviderFailed for one that is too large.
    """
    for event in model.reply(request):
        if isinstance(event, Reply):
            if event.stop_reason == "reply_too_large":
                raise ProviderFailed("The model's reply is too large (LOOM_MAX_REPLY_BYTES).")
            return event
    raise StreamBroken("The model's stream ended without a reply.")


class Fallback:
    """Asks the first model, and the second if the provider refuses the request before any reply began.

    An account may have no access to the first model, and a server that speaks the same API may not know it.
    """

    def __init__(self, first: Model, second: Model) -> None:
        self.name = first.name
        self._first = first
        self._second = second

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        has_begun = False
        try:
            for event in self._first.reply(request):
                has_begun = True
                yield event
            return
        except ProviderFailed as error:
            if has_begun:
                raise
            log.warning("%s was refused, so %s is asked: %s", self._first.name, self._second.name, error)
        yield from self._second.reply(request)


class Revocable:
    """Asks another model only while the session exists: nothing of a deleted session is sent any more."""

    def __init__(self, model: Model, is_there: Callable[[], bool]) -> None:
        """Wrap a model.

        Args:
            is_there: asks the database; once just before each sending, and every CHECK_EVERY_S while a reply arrives.
        """
        self._model = model
        self._is_there = is_there

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Ends with Interrupted also if the session is deleted: nothing was sent, or the call was ended."""
        if not self._is_there():
            raise Interrupted("Nothing was sent: the session is deleted.")
        check_at_s, is_gone = time.monotonic() + CHECK_EVERY_S, False

        def is_given_up() -> bool:
            nonlocal check_at_s, is_gone
            if not is_gone and time.monotonic() >= check_at_s:
                is_gone = not self._is_there()
                check_at_s = time.monotonic() + CHECK_EVERY_S
            return is_gone or request.is_given_up()

        yield from self._model.reply(replace(request, may_be_sent=self._is_there, is_given_up=is_given_up))
