"""The models of a process: each provider's adapter, behind its circuit breaker and with its retries."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from urllib.parse import urlsplit

from loom_worker.backends.rest import client
from loom_worker.core.errors import BadSettings, Interrupted, LoomError, ProviderFailed
from loom_worker.core.settings import Settings
from loom_worker.core.settings_tree import LlmSettings
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.agents import OWN_PROTOCOL, Agent, ModelChoice, RemoteAgent, sdk
from loom_worker.core.values.chat import ReplyEvent, Request
from loom_worker.core.values.sessions import Choice
from loom_worker.demo.scripted import Scripted
from loom_worker.guard.limits import BreakerPolicy, Breakers
from loom_worker.llm import prices, tokens
from loom_worker.llm.a2a import A2aAgent
from loom_worker.llm.a2a_http import RemoteAddress
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.catalog import sees
from loom_worker.llm.http_model import CallOptions
from loom_worker.llm.model import Fallbacks, Metered, Model, Tuned, is_refused
from loom_worker.llm.presets import preset_at
from loom_worker.llm.prices import is_cheaper, small_model
from loom_worker.llm.retry import Guarded, Measured, Retrying, RetryPolicy
from loom_worker.memory.layers import Count

SHORT_CHARS, SHORT = 2_000, 16_384
REMEMBERED_CHARS, LONG = 20_000, 2_048
"""Texts up to a length, and how many of them have their counts remembered: messages of some fifty sessions, and their
results. The memory of counts stays under some 75 MB a model; longer texts are counted anew each time."""
PROBE_SLACK_S = 5.0
"""A breaker's probe is given up this long after its call should have ended."""
WITH_OTHERS = RetryPolicy(total_s=20.0)
"""Where another model stands in for one, it is not tried again for longer."""
LOCAL_CALL_S = 600.0
"""Least deadline of a call of a model on the user's own machine: to read 4,000 tokens takes a processor 100 s."""
LOCAL_BREAKER = BreakerPolicy(open_s=5.0, max_open_s=5.0)
"""Such a server is there again a few seconds after it is started, and nobody else waits for it."""


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

    def chosen(self, agent: Agent, choice: Choice) -> ModelChoice:
        """The model that answers: the session's choice, the workspace's, the agent's, or the setting's."""
        return agent.answering(self._settings.llm.usual, ModelChoice(choice.provider, choice.model))

    def model(self, chosen: ModelChoice) -> Model:
        """A resolved model, with those that stand in for it; one that cannot be had says so at every call."""
        if not chosen.fallbacks:
            return self._model(chosen, RetryPolicy())
        *others, last = (chosen, *chosen.fallbacks)
        return Fallbacks((*(self._model(each, WITH_OTHERS) for each in others), self._model(last, RetryPolicy())))

    def _model(self, chosen: ModelChoice, policy: RetryPolicy) -> Model:
        llm = self._settings.llm
        if chosen.provider == "scripted":
            scripted = Scripted(
                self.count(chosen.name),
                model=chosen.name,
                stopping=self._stopping,
                max_reply_bytes=llm.max_reply_bytes,
            )
            return Metered(Measured(scripted))
        try:
            made = Tuned(adapter(self._settings, chosen, self._stopping), chosen.thinking, chosen.sampling)
        except LoomError as error:
            return Absent(str(error))
        # A server at an address of its own fails alone.
        server = " at ".join(filter(None, (chosen.provider, chosen.base_url and urlsplit(chosen.base_url).netloc)))
        breakers = self._breakers.under(LOCAL_BREAKER) if chosen.is_local else self._breakers
        probe_s = _call_timeout_s(llm, chosen) + PROBE_SLACK_S
        return self._guarded(made, server, probe_s, breakers=breakers, policy=policy)

    def answering(self, agent: Agent, chosen: ModelChoice) -> Model:
        """What answers an agent's turns: the agent elsewhere that its file names, or the model."""
        if agent.remote is None:
            return self.model(chosen)
        try:
            remote = self._remote(agent.name, agent.remote)
        except LoomError as error:
            return Absent(f"The agent {agent.name!r} cannot work: {error}")
        probe_s = (agent.remote.timeout_s or self._settings.llm.call_timeout_s) + PROBE_SLACK_S
        return self._guarded(remote, "a2a", probe_s, breakers=self._breakers, policy=RetryPolicy())

    def compressor(self, agent: Agent, choice: Choice) -> Model | None:
        """What writes an agent's summaries; None: the scripted model understands no conversation.

        Unless the agent names one it is the provider's small model, where one is known; the agent's own where not, or
        where the provider refuses the small one.
        """
        chosen = self._beside(agent, agent.compressor, choice)
        if chosen.provider == "scripted":
            return None
        small = None if agent.compressor.model else self._small(chosen)
        own = self.model(chosen)
        return own if small is None else Fallbacks((self.model(replace(chosen, model=small)), own), falls=is_refused)

    def judge(self, agent: Agent, choice: Choice) -> Model | None:
        """What an agent's LLM judges ask; None: the scripted model understands no answer.

        The model that answers judges too, unless the agent names another one.
        """
        chosen = self.judging(agent, choice)
        return None if chosen.provider == "scripted" else self.model(chosen)

    def judging(self, agent: Agent, choice: Choice) -> ModelChoice:
        """The model that an agent's judges ask."""
        return self._beside(agent, agent.judge_model, choice)

    def _beside(self, agent: Agent, block: ModelChoice, choice: Choice) -> ModelChoice:
        return agent.beside(block, self._settings.llm.usual, ModelChoice(choice.provider, choice.model))

    def sees(self, chosen: ModelChoice) -> frozenset[str]:
        """Kinds of media that a resolved model is shown; BadSettings: its address is none."""
        return sees(chosen, self._address(chosen))

    def _address(self, chosen: ModelChoice) -> str | None:
        return chosen.base_url or self._settings.access(f"{chosen.provider}")[0]

    def _small(self, chosen: ModelChoice) -> str | None:
        """The small model of a resolved model's provider; None: none is known, or it is no cheaper."""
        if chosen.provider in OWN_PROTOCOL:
            return small_model(chosen.name)
        small = preset_at(f"{chosen.provider}", self._address(chosen)).small
        return small if small and is_cheaper(f"{chosen.provider}/{small}", chosen.name) else None

    def count(self, name: str) -> Count:
        """How a model counts tokens, never too few."""
        if name not in self._counts:
            self._counts[name] = _remembering(partial(tokens.count, model=name))
        return self._counts[name]

    def warm(self) -> None:
        """Load what the first call would otherwise wait for."""
        for name in sdk(self._settings.llm.provider):
            import_module(name)

    def _guarded(
        self, adapter: Model, provider: str, probe_s: float, *, breakers: Breakers, policy: RetryPolicy
    ) -> Model:
        # An open breaker is not waited for: the turn parks at once, or another model is asked.
        guarded = Guarded(Measured(adapter), breakers, provider=provider, probe_s=probe_s)
        return Retrying(Metered(guarded), pause=self.pause, chance=random.random, clock=time.monotonic, policy=policy)

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


def adapter(settings: Settings, chosen: ModelChoice, stopping: Stopping) -> Model:
    """What asks a resolved model: one request for one reply; BadSettings if it cannot be had."""
    llm, provider, name = settings.llm, f"{chosen.provider}", f"{chosen.model}"
    url, key = _access(settings, chosen)
    options: CallOptions = {
        "call_timeout_s": _call_timeout_s(llm, chosen),
        "stopping": stopping,
        "max_reply_bytes": llm.max_reply_bytes,
        "cache_marks": llm.cache_marks,
        "sees": sees(chosen, url),
    }
    if provider == "bedrock":
        from loom_worker.llm.bedrock import Bedrock

        return Bedrock(model=name, **options)
    if provider == "anthropic":
        return Anthropic(model=name, api_key=key, base_url=url, in_file=chosen.is_in_file, **options)
    from loom_worker.llm.openai import OpenAi

    address = url or (llm.ollama_host if provider == "ollama" else None)
    return OpenAi(model=name, preset=provider, base_url=address, api_key=key, in_file=chosen.is_in_file, **options)


def _call_timeout_s(llm: LlmSettings, chosen: ModelChoice) -> float:
    return max(llm.call_timeout_s, LOCAL_CALL_S) if chosen.is_local else llm.call_timeout_s


def _access(settings: Settings, chosen: ModelChoice) -> tuple[str | None, str | None]:
    """The address and the key of a resolved model; a usual key goes to no address but the usual one."""
    if chosen.secret and chosen.secret not in settings.secrets:
        raise BadSettings(f"LOOM_SECRET_{chosen.secret} is not set")
    secret = settings.secrets[chosen.secret] if chosen.secret else None
    if chosen.base_url:
        return chosen.base_url, secret
    provider = f"{chosen.provider}"
    lacks = "" if provider == "anthropic" else settings.lacks(provider)  # whose SDK finds other credentials, too
    if lacks and not secret:
        raise BadSettings(f"the provider {provider} has no key: set {lacks}")
    url, key = settings.access(provider)
    return url, secret or key


def _remembering(count: Count) -> Count:
    """Count a text once: system text, tools and earlier messages come again with every call."""
    short, long = lru_cache(maxsize=SHORT)(count), lru_cache(maxsize=LONG)(count)

    def remembered(text: str) -> int:
        if len(text) <= SHORT_CHARS:
            return short(text)
        return long(text) if len(text) <= REMEMBERED_CHARS else count(text)

    return remembered
