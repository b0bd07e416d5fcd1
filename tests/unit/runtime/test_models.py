"""Which server is asked, and with which key: real adapters, real servers on loopback."""

from dataclasses import replace

import pytest

from loom_worker.core.errors import BadSettings
from loom_worker.core.settings import Settings, from_env
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.agents import Agent, ModelChoice
from loom_worker.core.values.chat import ChatMessage, Request
from loom_worker.llm.model import whole_reply
from loom_worker.runtime.models import adapter
from tests.support.messages_server import MessagesServer

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
