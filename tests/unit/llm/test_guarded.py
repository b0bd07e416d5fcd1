"""A model behind a circuit breaker, with a breaker that keeps what it is told."""

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
from loom_worker.llm.anthropic_errors import Refused, refusal
from loom_worker.llm.guarded import Guarded
from loom_worker.llm.model import NotSent, whole_reply
from tests.support.models import Plays, says

REQUEST = Request("", (ChatMessage("user", "hello"),))


@dataclass
class Allows:
    open_for_s: float | None = None
    token: str | None = None


@dataclass
class Told:
    """A breaker with one verdict for all."""

    verdict: Allows = field(default_factory=Allows)
    asked: list = field(default_factory=list)
    told: list = field(default_factory=list)

    def look(self, name, *, probe_s):
        self.asked.append((name, probe_s))
        return self.verdict

    def succeeded(self, name, token):
        self.told.append(("succeeded", name, token))

    def failed(self, name, token):
        self.told.append(("failed", name, token))

    def let_go(self, name, token):
        self.told.append(("let_go", name, token))


def guarded(breaker, *scenes):
    return Guarded(Plays(list(scenes)), breaker, provider="anthropic", probe_s=130.0)


def refused(status, kind=""):
    return refusal(Refused(status, kind), model="m", now_s=0.0, secret=None)


def test_it_is_the_model_that_it_guards():
    model = guarded(breaker := Told(), says("hello"))
    assert model.name == "played"
    *_, reply = model.reply(REQUEST)
    assert (reply.text, breaker.asked) == ("hello", [("llm:anthropic:played", 130.0)])


@pytest.mark.parametrize("token", [None, "probe"])
def test_a_whole_reply_is_a_success(token):
    breaker = Told(Allows(token=token))
    list(guarded(breaker, says("hello")).reply(REQUEST))
    assert breaker.told == [("succeeded", "llm:anthropic:played", token)]


def test_a_caller_that_stops_at_the_reply_is_told_of_all_the_same():
    breaker = Told(Allows(token="probe"))
    assert isinstance(whole_reply(guarded(breaker, says("hello")), REQUEST), Reply)
    assert [verb for verb, *_ in breaker.told] == ["succeeded"]


def test_an_open_breaker_refuses_without_a_request_and_names_the_time():
    breaker = Told(Allows(open_for_s=12.4))
    model = Guarded(played := Plays(), breaker, provider="bedrock", probe_s=1.0)
    with pytest.raises(Overloaded, match=r"bedrock.* another 13 s") as caught:
        list(model.reply(REQUEST))
    assert caught.value.retry_after_s == 12.4
    assert (played.asked, breaker.told) == ([], [])


def test_nothing_is_asked_before_the_first_next():
    breaker = Told(Allows(open_for_s=1.0))
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
        (refused(429), "let_go"),
        (refused(429, "rate_limit_error"), "let_go"),
        (refused(200, "rate_limit_error"), "let_go"),
        (refused(400, "invalid_request_error"), "succeeded"),
        (refused(401), "succeeded"),
        (ProviderFailed("no"), "succeeded"),
        (PromptTooLong("long", 2, 1), "succeeded"),
        (NotSent("not JSON"), "let_go"),
        (Interrupted("stop"), "let_go"),
        (BudgetExceeded("much"), "let_go"),
        (KeyError("a bug"), "let_go"),
    ],
)
def test_only_what_the_provider_failed_at_is_a_failure(error, verb):
    breaker = Told(Allows(token="probe"))
    with pytest.raises(type(error)) as caught:
        list(guarded(breaker, [*says("half")[:1], error]).reply(REQUEST))
    assert caught.value is error
    assert breaker.told == [(verb, "llm:anthropic:played", "probe")]


@pytest.mark.parametrize("pieces", [0, 1])
def test_a_call_that_is_closed_early_leaves_no_probe_hanging(pieces):
    breaker = Told(Allows(token="probe"))
    model = guarded(breaker, says("hello there"))
    replies = model.reply(REQUEST)
    for _ in range(pieces):
        next(replies)
    replies.close()
    assert breaker.told == [("let_go", "llm:anthropic:played", "probe")] * pieces
