"""The embedding models of a process, and what agents' files make of them: vectors, and search by meaning."""

import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from loom_worker.agents.known import AgentSource
from loom_worker.core.errors import BadSettings, LoomError, ProviderFailed
from loom_worker.core.settings_tree import EmbeddingSettings, Settings
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.sessions import Session
from loom_worker.core.values.tools import Caller
from loom_worker.guard.limits import Breakers
from loom_worker.llm import tokens
from loom_worker.llm.embeddings import Careful, Embedded, Embedder, MayBeSent, TextKind
from loom_worker.llm.embeddings_http import (
    OPENAI_URL,
    VOYAGE_URL,
    EmbeddingApi,
    HttpEmbedder,
    OllamaEmbed,
    OpenAiEmbed,
    Voyage,
)
from loom_worker.llm.embeddings_local import HashedWords, StaticModel
from loom_worker.llm.presets import address
from loom_worker.memory.embed import EmbeddingRules
from loom_worker.memory.semantic import QueryEmbedder, SemanticSearch
from loom_worker.runtime.models import Models
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.ledger import Ledger
from loom_worker.store.search import Search
from loom_worker.store.vectors import MessageVectors

_FOLDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class NoEmbedder:
    """The embedding model of an agent that cannot have it: each call says why."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self._why = why

    def embed(self, texts: Sequence[str], *, kind: TextKind, timeout_s: float, may_be_sent: MayBeSent) -> Embedded:
        """Refuse."""
        raise ProviderFailed(self._why)


class Embedders:
    """Makes embedders; what it makes may be used from many threads."""

    def __init__(
        self,
        settings: Settings,
        agents: AgentSource,
        database: Database,
        *,
        models: Models,
        breakers: Breakers,
        stopping: Stopping,
    ) -> None:
        self._settings = settings
        self._agents = agents
        self._database = database
        self._models = models
        self._breakers = breakers
        self._stopping = stopping
        self._made: dict[str, Embedder] = {}

    def embedder(self, name: str) -> Embedder:
        """An embedding model by its name, ``provider/model``; one that cannot be had says so at every call."""
        if name not in self._made:
            self._made[name] = self._new(name)
        return self._made[name]

    def rules(self, session: Session) -> EmbeddingRules | None:
        agent = self._agents.current(session.agent).agents.get(session.agent)
        name = model_of(agent) if agent else None
        if agent is None or name is None:
            return None
        return EmbeddingRules(self.embedder(name), self._count(name), agent.budget, self._settings.embeddings.timeout_s)

    def semantic(self, agent: Agent) -> SemanticSearch | None:
        """What finds messages by meaning; None: the agent's file has no tiers of memory."""
        if agent.tiers is None:
            return None
        name = model_of(agent)
        query = None if name is None else self._query(agent, name)
        return SemanticSearch(MessageVectors(self._database), Search(self._database), agent.tiers.scope, query)

    def of_session(self, session: Session) -> tuple[SemanticSearch | None, Caller]:
        """What is fused with a search by words in a session; None: its agent's file enables no embeddings."""
        agent = self._agents.current(session.agent).agents.get(session.agent)
        caller = Caller(session.lane, session.id, session.workspace, turn_id="", call_id="", agent=session.agent)
        return self.semantic(agent) if agent and model_of(agent) else None, caller

    def _query(self, agent: Agent, name: str) -> QueryEmbedder:
        return QueryEmbedder(
            self.embedder(name),
            self._count(name),
            Budgets(self._database),
            Ledger(self._database),
            agent.budget,
            self._settings.embeddings.query_timeout_s,
        )

    def _count(self, name: str) -> Callable[[str], int]:
        return partial(tokens.count, model=name)

    def _new(self, name: str) -> Embedder:
        try:
            found = adapter(name, self._settings, stopping=self._stopping)
        except LoomError as error:
            return NoEmbedder(name, str(error))
        if isinstance(found, HttpEmbedder):
            return Careful(found, self._breakers, pause=self._models.pause, chance=random.random)
        return found


def model_of(agent: Agent) -> str | None:
    """The embedding model that an agent's file names and enables."""
    return agent.tiers.embedding_model if agent.tiers is not None and agent.tiers.has_embeddings else None


def adapter(name: str, settings: Settings, *, stopping: Stopping | None = None) -> Embedder:
    """The adapter of an embedding model; BadSettings: something is missing that it needs; says which setting."""
    provider, _, model = name.partition("/")
    if provider == "scripted":
        return HashedWords(model)
    if provider == "local":
        return StaticModel(_folder(model, settings.embeddings))
    return HttpEmbedder(_api(provider, settings), model, stopping)


def _api(provider: str, settings: Settings) -> EmbeddingApi:
    given = settings.embeddings
    if provider == "ollama":
        return OllamaEmbed(address(settings.llm.ollama_host))
    if provider == "openai":
        url, key = settings.access(provider, embeds=True)
        if url is None and key is None:
            needed = "LOOM_OPENAI_KEY or OPENAI_API_KEY, or LOOM_OPENAI_URL of another server"
            raise BadSettings(f"OpenAI's embeddings need a key: set {needed}")
        return OpenAiEmbed((url or OPENAI_URL).rstrip("/"), key)
    if provider == "voyage":
        if given.voyage_key is None and given.voyage_url is None:
            raise BadSettings(
                "Voyage's embeddings need a key: set LOOM_VOYAGE_KEY, or LOOM_VOYAGE_URL of another server"
            )
        return Voyage((given.voyage_url or VOYAGE_URL).rstrip("/"), given.voyage_key)
    raise BadSettings(f"there is no provider of embeddings {provider!r}")


def _folder(model: str, given: EmbeddingSettings) -> Path:
    if given.folder is None:
        raise BadSettings(f"the local embedding model {model!r} needs LOOM_EMBEDDINGS_DIR, which holds its folder")
    if not _FOLDER.fullmatch(model):
        raise BadSettings(f"the local embedding model {model!r} is no name of a folder in LOOM_EMBEDDINGS_DIR")
    return given.folder / model
