"""A model that the provider refuses is stood in for by another, and only then."""

from collections.abc import Iterator

import pytest

from loom_worker.core.errors import Overloaded, ProviderFailed
from loom_worker.core.values.chat import ChatMessage, Reply, ReplyEvent, Request, TextDelta, Usage
from loom_worker.llm.model import Fallback, whole_reply

REQUEST = Request("", (ChatMessage("user", "hi"),))


class Plays:
    """A Model that plays the same events and errors at every call."""

    def __init__(self, name: str, *parts: ReplyEvent | Exception) -> None:
        self.name = name
        self.asked = 0
        self._parts = parts

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """See Model.reply."""
        self.asked += 1
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            yield part


def answering(name: str) -> Plays:
    """A model that answers by its name."""
    return Plays(name, TextDelta(name), Reply(name, "end_turn", Usage(), name))


def test_the_first_model_answers_and_the_second_is_not_asked() -> None:
    own = answering("own")
    assert whole_reply(Fallback(answering("small"), own), REQUEST).model == "small"
    assert own.asked == 0


def test_what_the_provider_refuses_the_second_model_answers() -> None:
    small = Plays("small", ProviderFailed("no such model"))
    assert whole_reply(Fallback(small, answering("own")), REQUEST).model == "own"


@pytest.mark.parametrize("parts", [(TextDelta("so"), ProviderFailed("cut")), (Overloaded("busy"),)])
def test_what_failed_midway_or_may_be_tried_again_is_not_asked_twice(parts: tuple[ReplyEvent | Exception, ...]) -> None:
    own = answering("own")
    with pytest.raises((ProviderFailed, Overloaded)):
        whole_reply(Fallback(Plays("small", *parts), own), REQUEST)
    assert own.asked == 0
