"""Trying again, without a clock or a network."""

from dataclasses import replace

import pytest

from loom_worker.core.errors import Interrupted, Overloaded, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import ChatMessage, Reply, Request, Restarted, TextDelta, Usage
from loom_worker.llm.retry import Retrying, RetryPolicy

REQUEST = Request("", (ChatMessage("user", "hi"),))
REPLY = Reply("Hello", "end_turn", Usage(), "m")


class Plays:
    """A Model that plays one list of events and errors for each call."""

    name = "plays"

    def __init__(self, *calls):
        self.calls = list(calls)

    def reply(self, request):
        for part in self.calls.pop(0):
            if isinstance(part, Exception):
                raise part
            yield part


class World:
    """Time that passes only by waiting."""

    def __init__(self, *calls, chance=1.0, call_s=0.0, **patience):
        self.now_s = 0.0
        self.waits = []
        self.model = Retrying(
            Plays(*calls),
            pause=self.pause,
            chance=lambda: chance,
            clock=self.clock,
            policy=RetryPolicy(**patience),
        )
        self.call_s = call_s

    def pause(self, seconds, _is_given_up):
        self.waits.append(seconds)
        self.now_s += seconds

    def clock(self):
        self.now_s += self.call_s
        return self.now_s

    def events(self):
        return list(self.model.reply(REQUEST))


GOOD = [TextDelta("Hello"), REPLY]


def test_a_good_call_passes_through():
    world = World(GOOD)
    assert (world.events(), world.waits, world.model.name) == (GOOD, [], "plays")


@pytest.mark.parametrize("error", [Overloaded("busy", None), Overloaded("busy"), StreamBroken("cut")])
def test_what_may_pass_is_tried_again(error):
    assert World([error], [error], GOOD).events() == GOOD


@pytest.mark.parametrize("error", [ProviderFailed("no"), Interrupted("stop"), KeyError("bug")])
def test_what_will_not_pass_is_raised_at_once(error):
    world = World([error], GOOD)
    with pytest.raises(type(error)):
        world.events()
    assert world.waits == []


def test_deltas_are_taken_back_before_the_next_try():
    events = World([TextDelta("Hel"), StreamBroken("cut")], GOOD).events()
    assert events == [TextDelta("Hel"), Restarted("cut"), *GOOD]


def test_a_try_that_said_nothing_is_not_taken_back():
    assert World([StreamBroken("cut")], GOOD).events() == GOOD


def test_a_last_failure_is_raised_without_a_restart():
    world = World(*[[TextDelta("x"), StreamBroken(str(n))] for n in range(3)])
    seen = []
    with pytest.raises(StreamBroken, match="2"):
        seen.extend(world.model.reply(REQUEST))
    assert [type(event) for event in seen] == [TextDelta, Restarted, TextDelta, Restarted, TextDelta]


def test_waits_double_up_to_the_longest():
    world = World(*[[StreamBroken("x")]] * 6, tries=6, first_wait_s=1.0, max_wait_s=5.0)
    with pytest.raises(StreamBroken):
        world.events()
    assert world.waits == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_waits_are_spread_over_their_whole_length():
    world = World([StreamBroken("x")], GOOD, chance=0.25, first_wait_s=1.0)
    world.events()
    assert world.waits == [0.25]


def test_the_providers_wish_is_the_least_wait():
    world = World([Overloaded("busy", 3.0)], GOOD, chance=0.0)
    world.events()
    assert world.waits == [3.0]


def test_a_wish_beyond_the_longest_wait_is_left_to_the_caller():
    world = World([Overloaded("busy", 5.1)], GOOD)
    with pytest.raises(Overloaded) as caught:
        world.events()
    assert (caught.value.retry_after_s, world.waits) == (5.1, [])


def test_the_last_wish_survives_when_the_tries_are_used_up():
    world = World(*[[Overloaded("busy", float(n))] for n in range(3)])
    with pytest.raises(Overloaded) as caught:
        world.events()
    assert caught.value.retry_after_s == 2.0


def test_no_try_begins_after_the_total_time():
    world = World([StreamBroken("x")], GOOD, call_s=6.0, total_s=10.0)
    assert world.events() == GOOD
    world = World([StreamBroken("x")], GOOD, call_s=11.0, total_s=10.0)
    with pytest.raises(StreamBroken):
        world.events()
    assert world.waits == []


def test_a_stop_during_the_pause_ends_the_call():
    def stop(_seconds, _is_given_up):
        raise Interrupted("stop")

    model = Retrying(Plays([StreamBroken("x")], GOOD), pause=stop, chance=lambda: 0.0, clock=lambda: 0.0)
    with pytest.raises(Interrupted):
        list(model.reply(REQUEST))


def test_each_failure_that_is_tried_again_is_told_before_the_pause():
    class Notes:
        def __init__(self):
            self.told = []

        def failed(self, error, wait_s):
            self.told.append((str(error), wait_s, list(world.waits)))

    world, notes = World([Overloaded("busy", 2.0)], [StreamBroken("cut")], GOOD), Notes()
    assert list(world.model.reply(replace(REQUEST, watch=notes)))[-1] == REPLY
    assert notes.told == [("busy", 2.0, []), ("cut", 1.0, [2.0])]
