"""A model that nobody asked for by name, and the one that answers where the provider refuses it."""

import logging
from collections.abc import Iterator

from loom_worker.core.errors import ProviderFailed
from loom_worker.core.values.chat import ReplyEvent, Request
from loom_worker.llm.model import Model

log = logging.getLogger(__name__)


class Fallback:
    """Asks the first model; a request that its provider refuses before anything came of it goes to the second.

    An account may lack the first, and a server that speaks the same API may not know it.
    """

    def __init__(self, first: Model, second: Model) -> None:
        self.name = first.name
        self._first = first
        self._second = second

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """See Model.reply."""
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
