"""Which server is asked, and with which key: real adapters, real servers on loopback."""

from dataclasses import replace

import pytest
import redis

from loom_worker.core.errors import BadSettings, LeftAlone, Transient
from loom_worker.core.settings import Settings, from_env
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.agents import Agent, ModelChoice
from loom_worker.core.values.chat import ChatMessage, FellBack, Reply, Request, Sampling, Thinking
from loom_worker.guard.limits import Breakers
from loom_worker.llm.model import Model, whole_reply
from loom_worker.runtime.models import Models, adapter
from tests.support.messages_server import MessagesServer, failure
from tests.support.openai_server import OpenAiServer, refusal

ASKED = Request("", (ChatMessage("user", "hello"),), max_tokens=10)


def ask(settings: Settings, chosen: ModelChoice) -> None:
    whole_reply(adapter(settings, chosen, Stopping(5)), ASKED)


def test_each_server_is_sent_its_own_key_and_no_other() -> None:
    with MessagesServer() as own, MessagesServer() as usual:
        settings = from_env({"ANTHROPIC_API_KEY": "usual-key", "ANTHROPIC_BASE_URL": usual.url})
        settings = replace(settings, secrets={"OWN": "own-key"})
        llm = ModelChoice("anthropic", "claude-sonnet-5-5", base_url=own.url, secret="OWN")
        agent, default = Agent("a", llm=llm), settings.llm.usual
        elsewhere = Agent("b", llm=replace(llm, provider="openai"))
        ask(settings, agent.answering(default))
        ask(settings, Agent("c", llm=replace(llm, secret=None)).answering(default))
        ask(settings, elsewhere.answering(default, ModelChoice(model="anthropic/claude-haiku-5-5")))
        ask(settings, elsewhere.answering(default, ModelChoice("anthropic", "claude-haiku-5-5")))
    assert [each["authorization"] for each in own.headers] == ["Bearer own-key", "Bearer no-key"]
    assert [
        (each["authorization"], body["model"]) for each, body in zip(usual.headers, usual.requests, strict=True)
    ] == [("Bearer usual-key", "claude-haiku-5-5")] * 2


@pytest.mark.cases(
    ("chosen", "needed"),
    [
        (ModelChoice("groq", "m"), "GROQ_API_KEY"),
        (ModelChoice("azure", "m"), "AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT"),
        (ModelChoice("anthropic", "m", base_url="http://h", secret="GONE"), "LOOM_SECRET_GONE"),
    ],
)
def test_a_model_that_cannot_be_asked_says_what_it_needs(chosen: ModelChoice, needed: str) -> None:
    with pytest.raises(BadSettings, match=needed):
        adapter(from_env({}), chosen, Stopping(5))


@pytest.fixture
def models(valkey: redis.Redis) -> Models:
    return Models(from_env({}), breakers=Breakers(valkey), stopping=Stopping(5))


def test_where_one_maker_is_busy_or_gives_nothing_the_next_one_answers(models: Models) -> None:
    busy = failure(529, "overloaded_error")
    with (
        MessagesServer([busy] * 3) as first,
        OpenAiServer([refusal(402, "no credit")]) as second,
        OpenAiServer() as last,
    ):
        chain = (
            ModelChoice("groq", "llama", base_url=second.url),
            ModelChoice("vllm", "qwen", base_url=last.url, is_local=True, sampling=Sampling(temperature=0.1)),
        )
        chosen = ModelChoice("anthropic", "claude-sonnet-5-5", base_url=first.url, fallbacks=chain)
        events = list(models.model(chosen).reply(ASKED))
        assert [body["temperature"] for body in last.requests] == [0.1]
    fell = [(event.model, event.instead_of) for event in events if isinstance(event, FellBack)]
    assert fell == [("groq/llama", "claude-sonnet-5-5"), ("vllm/qwen", "groq/llama")]
    assert [(event.model, event.text) for event in events if isinstance(event, Reply)] == [("vllm/qwen", "echo: hello")]
    assert (len(first.requests), len(second.requests)) == (3, 1)


def test_what_a_file_wishes_is_asked_for_and_what_a_request_wishes_comes_first(models: Models) -> None:
    with OpenAiServer() as server:
        sampling = Sampling(top_p=0.5, extra={"service_tier": "flex"})
        chosen = ModelChoice("groq", "m", base_url=server.url, thinking=Thinking(effort="low"), sampling=sampling)
        whole_reply(models.model(chosen), ASKED)
        whole_reply(models.model(chosen), replace(ASKED, thinking=Thinking(effort="high")))
        told = [(body["top_p"], body["service_tier"], body["reasoning_effort"]) for body in server.requests]
    assert told == [(0.5, "flex", "low"), (0.5, "flex", "high")]


def test_the_breaker_of_a_server_at_home_is_open_for_seconds(models: Models, valkey: redis.Redis) -> None:
    chosen = ModelChoice("vllm", "m", base_url="http://127.0.0.1:9/v1", is_local=True)
    failures = [failed(models.model(chosen), f"s{n}") for n in range(7)]
    [left, *_] = [error for error in failures if isinstance(error, LeftAlone)]
    assert 0 < (left.retry_after_s or 0) <= 5


def failed(model: Model, source: str) -> Transient:
    with pytest.raises(Transient) as caught:
        whole_reply(model, replace(ASKED, source=source))
    return caught.value
