"""A model that cannot answer is stood in for by the next one, and only then."""

from collections.abc import Iterator

import pytest

from loom_worker.core.errors import (
    Interrupted,
    LeftAlone,
    LoomError,
    NoAccess,
    Overloaded,
    PromptTooLong,
    ProviderFailed,
    StreamBroken,
    Unreached,
)
from loom_worker.core.values.chat import ChatMessage, FellBack, Reply, ReplyEvent, Request, Restarted, TextDelta, Usage
from loom_worker.llm.model import Fallbacks, is_refused, whole_reply

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


def test_the_first_model_answers_and_no_other_is_asked() -> None:
    second = answering("second")
    assert whole_reply(Fallbacks((answering("first"), second)), REQUEST).model == "first"
    assert second.asked == 0


@pytest.mark.cases(
    "error",
    [Overloaded("busy"), LeftAlone("open", 9.0), StreamBroken("cut"), Unreached("no route"), NoAccess("no credit")],
)
def test_the_next_model_answers_in_the_place_of_one_that_cannot(error: LoomError) -> None:
    events = list(Fallbacks((Plays("first", error), Plays("second", error), answering("third"))).reply(REQUEST))
    assert events[:2] == [FellBack("second", "first", str(error)), FellBack("third", "second", str(error))]
    assert [event.model for event in events if isinstance(event, Reply)] == ["third"]


@pytest.mark.cases("error", [ProviderFailed("bad request"), PromptTooLong("too long", 9, 8), Interrupted("stop")])
def test_a_request_that_every_model_would_refuse_is_sent_to_no_other(error: LoomError) -> None:
    second = answering("second")
    with pytest.raises(type(error)):
        whole_reply(Fallbacks((Plays("first", error), second)), REQUEST)
    assert second.asked == 0


def test_what_was_said_before_it_failed_is_taken_back() -> None:
    cut = Plays("first", TextDelta("so"), StreamBroken("cut"))
    events = list(Fallbacks((cut, answering("second"))).reply(REQUEST))
    kinds = [type(event) for event in events]
    assert kinds == [TextDelta, Restarted, FellBack, TextDelta, Reply]


def test_the_last_models_error_is_that_of_all() -> None:
    with pytest.raises(Overloaded, match="worse"):
        whole_reply(Fallbacks((Plays("first", StreamBroken("cut")), Plays("second", Overloaded("worse")))), REQUEST)


def test_a_small_model_that_is_refused_is_stood_in_for_and_a_busy_one_is_not() -> None:
    own = answering("own")
    assert whole_reply(Fallbacks((Plays("s", ProviderFailed("none")), own), falls=is_refused), REQUEST).model == "own"
    with pytest.raises(Overloaded):
        whole_reply(Fallbacks((Plays("s", Overloaded("busy")), own), falls=is_refused), REQUEST)
