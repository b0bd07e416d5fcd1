"""Requests to a provider, as the metrics know them."""

from collections.abc import Sequence

import pytest

from loom_worker.core.errors import (
    Interrupted,
    LoomError,
    Overloaded,
    PromptTooLong,
    ProviderFailed,
    StreamBroken,
)
from loom_worker.core.metrics import LLM_FIRST_TOKEN, LLM_REQUESTS
from loom_worker.core.values.chat import ChatMessage, Request, TextDelta
from loom_worker.llm.provider_errors import RATE_LIMIT
from loom_worker.llm.retry import Measured
from tests.support.counting import Counted
from tests.support.models import Beat, Plays, says

REQUEST = Request("", (ChatMessage("user", "hi"),))


def measured(*scenes: Sequence[Beat]) -> Measured:
    return Measured(Plays([*scenes], name="m1"))


def test_events_pass_as_they_are_and_a_reply_counts_once(counted: Counted) -> None:
    scene = says("Done.")
    assert list(measured(scene).reply(REQUEST)) == scene
    assert counted(LLM_REQUESTS) == {("m1", "ok"): 1}
    assert counted(LLM_FIRST_TOKEN) == {("m1",): 1}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Overloaded("slow down", 3.0, RATE_LIMIT), "rate_limited"),
        (Overloaded("busy", None), "overloaded"),
        (StreamBroken("cut"), "broken"),
        (PromptTooLong("too long", 9, 5), "too_long"),
        (ProviderFailed("bad key"), "refused"),
        (Interrupted("stop"), "given_up"),
    ],
)
def test_an_error_counts_by_what_it_says_of_the_provider(counted: Counted, error: LoomError, outcome: str) -> None:
    with pytest.raises(type(error)):
        list(measured([TextDelta("He"), error]).reply(REQUEST))
    assert counted(LLM_REQUESTS) == {("m1", outcome): 1}


def test_a_reply_that_is_closed_early_was_given_up(counted: Counted) -> None:
    stream = iter(measured([TextDelta("He"), TextDelta("llo")]).reply(REQUEST))
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # a generator
    assert counted(LLM_REQUESTS) == {("m1", "given_up"): 1}


def test_a_reader_that_stops_at_the_reply_has_it(counted: Counted) -> None:
    *_, last = says("Done.")
    stream = measured(says("Done.")).reply(REQUEST)
    assert next(event for event in stream if event == last)
    stream.close()  # type: ignore[attr-defined]  # a generator
    assert counted(LLM_REQUESTS) == {("m1", "ok"): 1}


def test_what_is_never_read_was_never_sent(counted: Counted) -> None:
    measured(says("Done.")).reply(REQUEST)
    assert counted(LLM_REQUESTS) == {}
