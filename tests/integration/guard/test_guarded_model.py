"""A provider that fails, real breakers on a real Valkey, and the retries around them."""

import threading
import time
from dataclasses import replace

import pytest

from loom_worker.core.errors import Overloaded
from loom_worker.core.values.chat import ChatMessage, Request
from loom_worker.guard.limits import BreakerPolicy, Breakers
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.retry import Guarded, Retrying
from tests.support.messages_server import Hang, MessagesServer, failure
from tests.support.until import until

pytestmark = [pytest.mark.heavy, pytest.mark.integration]

REQUEST = Request("", (ChatMessage("user", "hello"),))
NAME = "llm:anthropic:claude-test"


@pytest.fixture
def server():
    with MessagesServer() as running:
        yield running


def retrying(server, breakers, waits=None):
    adapter = Anthropic(model="claude-test", base_url=server.url, call_timeout_s=5.0)
    model = Guarded(adapter, breakers, provider="anthropic", probe_s=10.0)
    pause = (waits if waits is not None else []).append
    return Retrying(model, pause=lambda wait_s, _: pause(wait_s), chance=lambda: 0.0, clock=time.monotonic)


def ask(model, source=""):
    return list(model.reply(replace(REQUEST, source=source)))[-1].text


def test_after_five_failures_no_worker_asks_and_the_turn_is_told_how_long(server, valkey):
    server.then(*[failure(529, "overloaded_error")] * 5)
    for _ in range(2):
        with pytest.raises(Overloaded):
            ask(retrying(server, Breakers(valkey)))
    assert len(server.requests) == 5
    waits = []
    with pytest.raises(Overloaded, match="left alone") as caught:
        ask(retrying(server, Breakers(valkey), waits))
    assert caught.value.retry_after_s == pytest.approx(30, abs=1)
    assert (len(server.requests), waits) == (5, [])


def test_one_session_s_message_that_the_provider_cannot_bear_holds_no_other_session(server, valkey):
    server.then(*[failure(500, "api_error")] * 15)
    for _ in range(5):
        with pytest.raises(Overloaded, match="busy"):
            ask(retrying(server, Breakers(valkey)), "poison")
    assert ask(retrying(server, Breakers(valkey)), "well") == "echo: hello"


def test_a_storm_of_many_sessions_is_over_after_the_fifth_of_them(server, valkey):
    server.then(*[failure(529, "overloaded_error")] * 60)
    for n in range(20):
        with pytest.raises(Overloaded, match="left alone" if n >= 4 else "busy"):
            ask(retrying(server, Breakers(valkey)), f"session {n}")
    assert len(server.requests) == 4 * 3 + 1


def test_a_provider_that_is_well_again_is_asked_by_everyone_after_two_probes(server, valkey):
    breakers = Breakers(valkey, policy=BreakerPolicy(failures=1, open_s=0.05))
    server.then(failure(500, "api_error"))
    with pytest.raises(Overloaded):
        ask(retrying(server, breakers))
    until(lambda: breakers.states()[NAME] == "half-open", 5.0, "half-open")
    assert [ask(retrying(server, breakers)) for _ in range(2)] == ["echo: hello"] * 2
    assert breakers.states() == {}


def test_a_cancelled_probe_makes_room_for_the_next_one(server, valkey):
    breakers = Breakers(valkey, policy=BreakerPolicy(failures=1, open_s=0.05))
    breakers.failed(NAME)
    until(lambda: breakers.states()[NAME] == "half-open", 5.0, "half-open")
    release = threading.Event()
    server.then(Hang(release, after_bytes=600))
    replies = retrying(server, breakers).reply(REQUEST)
    next(replies)
    assert breakers.permit(NAME).state == "open"
    replies.close()
    assert ask(retrying(server, breakers)) == "echo: hello"
    release.set()


def test_a_rate_limit_opens_nothing(server, valkey):
    server.then(*[failure(429, "rate_limit_error", headers={"retry-after": "60"})] * 8)
    for _ in range(8):
        with pytest.raises(Overloaded):
            ask(retrying(server, Breakers(valkey)))
    assert Breakers(valkey).states() == {}
    assert ask(retrying(server, Breakers(valkey))) == "echo: hello"
