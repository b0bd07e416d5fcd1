"""The models of a process: each provider's adapter, behind its circuit breaker and with its retries."""

import random
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib import import_module

from loom_worker.backends.rest import client
from loom_worker.core.errors import BadSettings, Interrupted, LoomError, ProviderFailed
from loom_worker.core.settings import Settings
from loom_worker.core.settings_tree import LlmSettings
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.agents import Agent, RemoteAgent
from loom_worker.core.values.chat import ReplyEvent, Request
from loom_worker.demo.scripted import Scripted
from loom_worker.guard.limits import Breakers
from loom_worker.llm import prices, tokens
from loom_worker.llm.a2a import A2aAgent
from loom_worker.llm.a2a_http import RemoteAddress
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.http_model import CallOptions
from loom_worker.llm.model import Fallbacks, Metered, Model, is_refused
from loom_worker.llm.prices import small_model
from loom_worker.llm.retry import Guarded, Measured, Retrying
from loom_worker.memory.layers import Count

SHORT_CHARS, SHORT = 2_000, 16_384
REMEMBERED_CHARS, LONG = 20_000, 2_048
"""Texts up to a length, and how many of them have their counts remembered: messages of some fifty sessions, and their
results. The memory of counts stays under some 75 MB a model; longer texts are counted anew each time."""
PROBE_SLACK_S = 5.0
"""A breaker's probe is given up this long after its call should have ended."""


class Absent:
    """The model of an agent that is not there any more, or cannot work: each call says why."""

    def __init__(self, why: str) -> None:
        self.name = ""
        self._why = why

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Refuse."""
        raise ProviderFailed(self._why)


class Models:
    """Makes models; what it makes may be used from many threads."""

    def __init__(self, settings: Settings, *, breakers: Breakers, stopping: Stopping) -> None:
        self._settings = settings
        self._breakers = breakers
        self._stopping = stopping
        self._counts: dict[str, Count] = {}
        prices.use(settings.llm.prices)

    def chosen(self, agent: Agent, session: str | None = None) -> str:
        """The name of the model that answers: the session's choice, the agent's, or the setting's."""
        return session or agent.model or self._settings.llm.model

    def model(self, provider: str | None, name: str) -> Model:
        """A model by its provider, None: LOOM_PROVIDER; one that cannot be had says so at every call."""
        provider = provider or self._settings.llm.provider
        if provider == "scripted":
            scripted = Scripted(
                self.count(name),
                model=name,
                stopping=self._stopping,
                max_reply_bytes=self._settings.llm.max_reply_bytes,
            )
            return Metered(Measured(scripted))
        try:
            made = adapter(self._settings.llm, provider, name, self._stopping)
        except LoomError as error:
            return Absent(str(error))
        return self._guarded(made, provider, self._settings.llm.call_timeout_s + PROBE_SLACK_S)

    def answering(self, agent: Agent, provider: str | None, name: str) -> Model:
        """What answers an agent's turns: the agent elsewhere that its file names, or a model.

        Args:
            provider: that was chosen instead of the agent's own; None: none.
        """
        if agent.remote is None:
            return self.model(provider or agent.provider, name)
        try:
            remote = self._remote(agent.name, agent.remote)
        except LoomError as error:
            return Absent(f"The agent {agent.name!r} cannot work: {error}")
        probe_s = (agent.remote.timeout_s or self._settings.llm.call_timeout_s) + PROBE_SLACK_S
        return self._guarded(remote, "a2a", probe_s)

    def compressor(self, agent: Agent, name: str) -> Model | None:
        """What writes an agent's summaries; None: the scripted model understands no conversation.

        Unless the agent names one it is the provider's small model, where one is known; the agent's own where not, or
        where the provider refuses the small one.

        Args:
            name: of the model that answers.
        """
        provider = agent.compressor.provider or agent.provider or self._settings.llm.provider
        if provider == "scripted":
            return None
        own = self.model(provider, agent.compressor.model or name)
        small = None if agent.compressor.model or provider == "ollama" else small_model(name)
        return own if small is None else Fallbacks((self.model(provider, small), own), falls=is_refused)

    def judge(self, agent: Agent, name: str) -> Model | None:
        """What an agent's LLM judges ask; None: the scripted model understands no answer.

        Args:
            name: of the model that answers, which judges too unless the agent names another one.
        """
        provider = agent.judge_model.provider or agent.provider or self._settings.llm.provider
        return None if provider == "scripted" else self.model(provider, agent.judge_model.model or name)

    def count(self, name: str) -> Count:
        """How a model counts tokens, never too few."""
        if name not in self._counts:
            self._counts[name] = _remembering(partial(tokens.count, model=name))
        return self._counts[name]

    def warm(self) -> None:
        """Load what the first call would otherwise wait for."""
        if self._settings.llm.provider != "scripted":
            import_module("anthropic")

    def _guarded(self, adapter: Model, provider: str, probe_s: float) -> Model:
        # An open breaker's wait is longer than any retry's, so the turn parks at once.
        guarded = Guarded(Measured(adapter), self._breakers, provider=provider, probe_s=probe_s)
        return Retrying(Metered(guarded), pause=self.pause, chance=random.random, clock=time.monotonic)

    def _remote(self, name: str, remote: RemoteAgent) -> Model:
        """The adapter of an agent elsewhere; Invalid, BadSettings: its URL or its secret cannot be used."""
        secret = self._settings.secrets.get(remote.auth.secret) if remote.auth else None
        if remote.auth and remote.url.startswith("http:") and not remote.allow_private:
            raise BadSettings("a2a.url: a secret does not go out unencrypted; use https")
        address = RemoteAddress(
            remote.url,
            client.auth_headers(remote.auth, secret, needed_by="a2a"),
            allow_private=remote.allow_private,
            timeout_s=remote.timeout_s or self._settings.llm.call_timeout_s,
            max_reply_bytes=self._settings.llm.max_reply_bytes,
        )
        return A2aAgent(name, address, stopping=self._stopping)

    def pause(self, wait_s: float, is_given_up: Callable[[], bool]) -> None:
        """Wait between two tries; Interrupted if the process is to stop, or nobody wants the reply any more."""
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._stopping.is_asked or is_given_up():
                raise Interrupted("The worker stops, or nobody wants the reply any more.")
            time.sleep(min(left_s, 0.1))


def adapter(llm: LlmSettings, provider: str, name: str, stopping: Stopping) -> Model:
    """What asks a provider's model: one request for one reply; BadSettings if it cannot be had."""
    options: CallOptions = {
        "call_timeout_s": llm.call_timeout_s,
        "stopping": stopping,
        "max_reply_bytes": llm.max_reply_bytes,
        "cache_marks": llm.cache_marks,
    }
    if provider == "ollama":
        from loom_worker.llm.openai import OpenAi

        return OpenAi(model=name, preset=provider, base_url=llm.ollama_host, **options)
    if provider == "bedrock":
        from loom_worker.llm.bedrock import Bedrock

        return Bedrock(model=name, **options)
    return Anthropic(model=name, api_key=llm.api_key, base_url=llm.base_url, **options)


def _remembering(count: Count) -> Count:
    """Count a text once: system text, tools and earlier messages come again with every call."""
    short, long = lru_cache(maxsize=SHORT)(count), lru_cache(maxsize=LONG)(count)

    def remembered(text: str) -> int:
        if len(text) <= SHORT_CHARS:
            return short(text)
        return long(text) if len(text) <= REMEMBERED_CHARS else count(text)

    return remembered
