"""What every model is to the rest of Loom."""

from collections.abc import Iterator
from typing import Protocol

from loom_worker.core.errors import ProviderFailed, StreamBroken
from loom_worker.core.values.chat import Reply, ReplyEvent, Request


class NotSent(ProviderFailed):
    """The request could not even be written, so it says nothing of the provider."""


class Model(Protocol):
    """A language model: the Anthropic adapter, the scripted one, or a wrapper around either."""

    @property
    def name(self) -> str:
        """The model's name, as prices and token factors know it."""

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Answer one request; nothing happens before the first ``next``.

        Yields text as it comes (TextDelta), perhaps a Restarted that takes back the deltas before it, and exactly
        one Reply, as the last event; its text is the join of the deltas since the last Restarted. An iterator that
        ends without a Reply has raised. Closing the iterator gives up the call and its connection. Safe to use
        from many threads at once.

        Raises:
            Overloaded: the provider asks to wait; ``retry_after_s`` says how long, if it said so.
            StreamBroken: the reply was cut, malformed or too late; nothing of it counts.
            ProviderFailed: the provider refuses this request for good; NotSent: it cannot be sent at all.
            Interrupted: this process was asked to stop meanwhile, or the request is given up.
        """


def whole_reply(model: Model, request: Request) -> Reply:
    """Ask, and pass over what streams meanwhile.

    Raises:
        LoomError: as Model.reply; StreamBroken also where no reply came; ProviderFailed for one that is too large.
    """
    for event in model.reply(request):
        if isinstance(event, Reply):
            if event.stop_reason == "reply_too_large":
                raise ProviderFailed("The model's reply is too large (LOOM_MAX_REPLY_BYTES).")
            return event
    raise StreamBroken("The model's stream ended without a reply.")
