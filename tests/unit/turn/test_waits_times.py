"""Times of asking a model, taken down with a clock that moves a second with every look."""

from itertools import count

import pytest

from loom_worker.core.errors import Overloaded, ProviderFailed
from loom_worker.core.values.json import Json
from loom_worker.core.values.traces import CallTimes, Interval, Try
from loom_worker.turn.waits import ERROR_CHARS, TRIES, CallRecorder


@pytest.fixture
def recorder() -> CallRecorder:
    seconds = count(1)
    return CallRecorder(7, provider="anthropic", model="claude-test", clock_us=lambda: next(seconds))


def read(stored: Json | None) -> CallTimes:
    times = CallTimes.of(stored)
    assert times is not None
    return times


def test_before_anything_is_asked_nothing_is_left(recorder: CallRecorder) -> None:
    assert recorder.left() is None


def test_a_request_lasts_until_its_reply_is_taken(recorder: CallRecorder) -> None:
    recorder.built(0, 123)
    recorder.asked("claude-test")
    recorder.text()
    recorder.text()
    assert read(recorder.take()) == CallTimes(
        *(7, "anthropic", "claude-test", Interval(0, 1), 123), tries=(Try(Interval(2, 4)),), first_text_us=3
    )


def test_what_was_taken_is_not_left(recorder: CallRecorder) -> None:
    recorder.built(0, 1)
    recorder.asked("claude-test")
    recorder.take()
    assert recorder.left() is None


def test_every_failed_try_keeps_its_error_and_the_first_text_is_that_of_the_last(recorder: CallRecorder) -> None:
    recorder.asked("claude-test")
    recorder.text()
    recorder.failed(Overloaded("busy", 1.0))
    recorder.asked("claude-test")
    recorder.text()
    times = read(recorder.take())
    assert times.tries == (Try(Interval(1, 3), "Overloaded", "busy"), Try(Interval(4, 6)))
    assert times.first_text_us == 5


def test_an_error_that_comes_twice_is_that_of_one_request(recorder: CallRecorder) -> None:
    recorder.asked("claude-test")
    recorder.failed(ProviderFailed("401"))
    recorder.failed(ProviderFailed("401"))
    assert len(read(recorder.left()).tries) == 1


def test_an_error_before_anything_was_asked_is_no_request(recorder: CallRecorder) -> None:
    recorder.failed(ProviderFailed("There is no key."))
    assert recorder.left() is None


def test_a_request_that_was_given_up_ends_when_somebody_looks_and_stays_so(recorder: CallRecorder) -> None:
    recorder.asked("claude-test")
    first = recorder.left()
    assert read(first).tries == (Try(Interval(1, 2)),)
    assert recorder.left() == first


def test_a_context_that_was_built_is_left_also_where_nothing_was_asked(recorder: CallRecorder) -> None:
    recorder.built(0, 55)
    assert read(recorder.left()).tokens == 55


def test_another_reply_begins_anew(recorder: CallRecorder) -> None:
    recorder.built(0, 55)
    recorder.asked("claude-test")
    recorder.begin()
    assert recorder.left() is None


def test_the_last_tries_are_kept_and_errors_cut(recorder: CallRecorder) -> None:
    for n in range(TRIES + 5):
        recorder.asked("claude-test")
        recorder.failed(Overloaded(f"{n} " + "x" * 1000, 1.0))
    tries = read(recorder.left()).tries
    assert len(tries) == TRIES
    assert tries[0].error.split()[0] == "5"
    assert {len(one.error) for one in tries} == {ERROR_CHARS}
