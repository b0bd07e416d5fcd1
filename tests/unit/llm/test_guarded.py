"""A model behind a circuit breaker, with a breaker that keeps what is reported to it."""

from dataclasses import dataclass, field

import pytest

from loom_worker.core.errors import (
    BudgetExceeded,
    Interrupted,
    Overloaded,
    PromptTooLong,
    ProviderFailed,
    StreamBroken,
)
from loom_worker.core.values.chat import ChatMessage, Reply, Request
from loom_worker.guard.limits import CLOSED, CallPermit
from loom_worker.llm.model import NotSent, whole_reply
from loom_worker.llm.provider_errors import ErrorResponse, translated
from loom_worker.llm.retry import Guarded
from tests.support.models import Plays, says

REQUEST = Request("", (ChatMessage("user", "hello"),))


@dataclass
class Told:
    """Breakers with one permit for all."""

    permitted: CallPermit = CLOSED
    asked: list = field(default_factory=list)
    told: list = field(default_factory=list)
    answers: list = field(default_factory=list)

    def permit(self, name, *, probe_s):
        self.asked.append((name, probe_s))
        return self.permitted

    def succeeded(self, name, token):
        self.told.append(("succeeded", name, token))

    def failed(self, name, token, *, source):
        self.told.append(("failed", name, token))

    def tell_answer(self, model, failure=None):
        self.answers.append(failure)

    def abandoned(self, name, token):
        self.told.append(("abandoned", name, token))


def guarded(breaker, *scenes):
    return Guarded(Plays(list(scenes)), breaker, provider="anthropic", probe_s=130.0)


def refused(status, kind=""):
    return translated(ErrorResponse(status, kind), model="m", now_s=0.0, secret=None)


def test_it_is_the_model_that_it_guards():
    model = guarded(breaker := Told(), says("hello"))
    assert model.name == "played"
    *_, reply = model.reply(REQUEST)
    assert (reply.text, breaker.asked) == ("hello", [("llm:anthropic:played", 130.0)])


@pytest.mark.parametrize("token", [None, "probe"])
def test_a_whole_reply_is_a_success(token):
    breaker = Told(CallPermit(token=token))
    list(guarded(breaker, says("hello")).reply(REQUEST))
    assert breaker.told == [("succeeded", "llm:anthropic:played", token)]


def test_a_caller_that_stops_at_the_reply_is_told_of_all_the_same():
    breaker = Told(CallPermit(token="probe"))
    assert isinstance(whole_reply(guarded(breaker, says("hello")), REQUEST), Reply)
    assert [verb for verb, *_ in breaker.told] == ["succeeded"]


def test_an_open_breaker_refuses_without_a_request_and_names_the_time():
    breaker = Told(CallPermit(open_for_s=12.4))
    model = Guarded(played := Plays(), breaker, provider="bedrock", probe_s=1.0)
    with pytest.raises(Overloaded, match=r"bedrock.* another 13 s") as caught:
        list(model.reply(REQUEST))
    assert caught.value.retry_after_s == 12.4
    assert (played.asked, breaker.told) == ([], [])


def test_nothing_is_asked_before_the_first_next():
    breaker = Told(CallPermit(open_for_s=1.0))
    guarded(breaker).reply(REQUEST)
    assert breaker.asked == []


@pytest.mark.cases(
    ("error", "verb"),
    [
        (StreamBroken("cut"), "failed"),
        (Overloaded("busy"), "failed"),
        (refused(500), "failed"),
        (refused(503, "api_error"), "failed"),
        (refused(529, "overloaded_error"), "failed"),
        (refused(429, "overloaded_error"), "failed"),
        (refused(200, "overloaded_error"), "failed"),
        (refused(429), "abandoned"),
        (refused(429, "rate_limit_error"), "abandoned"),
        (refused(200, "rate_limit_error"), "abandoned"),
        (refused(400, "invalid_request_error"), "succeeded"),
        (refused(401), "succeeded"),
        (ProviderFailed("no"), "succeeded"),
        (PromptTooLong("long", 2, 1), "succeeded"),
        (NotSent("not JSON"), "abandoned"),
        (Interrupted("stop"), "abandoned"),
        (BudgetExceeded("much"), "abandoned"),
        (KeyError("a bug"), "abandoned"),
    ],
)
def test_only_what_the_provider_failed_at_is_a_failure(error, verb):
    breaker = Told(CallPermit(token="probe"))
    with pytest.raises(type(error)) as caught:
        list(guarded(breaker, [*says("half")[:1], error]).reply(REQUEST))
    assert caught.value is error
    assert breaker.told == [(verb, "llm:anthropic:played", "probe")]
    is_of_model = isinstance(error, StreamBroken | Overloaded | ProviderFailed) and not isinstance(error, PromptTooLong)
    assert breaker.answers == ([str(error)] if is_of_model else [])


@pytest.mark.parametrize("pieces", [0, 1])
def test_a_call_that_is_closed_early_leaves_no_probe_hanging(pieces):
    breaker = Told(CallPermit(token="probe"))
    model = guarded(breaker, says("hello there"))
    replies = model.reply(REQUEST)
    for _ in range(pieces):
        next(replies)
    replies.close()
    assert breaker.told == [("abandoned", "llm:anthropic:played", "probe")] * pieces
