"""What an agent's file makes of embedding models: adapters, a tool, searches, and reports of what is missing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loom_worker.agents.load import Agents
from loom_worker.core.errors import BadSettings, ProviderFailed
from loom_worker.core.settings import from_env
from loom_worker.core.settings_tree import EmbeddingSettings, Settings
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.llm.embeddings_http import HttpEmbedder
from loom_worker.memory.embed import MessageEmbedding, Progress
from loom_worker.runtime.components import Components
from loom_worker.runtime.embedders import adapter
from loom_worker.service.sessions import SessionSearch
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions
from loom_worker.store.vectors import MessageVectors
from tests.support.embedding_server import EmbeddingServer, embedding_server
from tests.support.registry import made_components
from tests.unit.runtime.test_installation import Told, told
from tests.unit.store.made import NOW_MS, WORKSPACE, final, message, running

__all__ = ["told"]  # a fixture
PLAIN = Agent("default", backend=None, patterns_enabled=False)
MODEL = "openai/small"
EMBEDDING = replace(PLAIN, tiers=MemoryTiers(has_embeddings=True, embedding_model=MODEL))
SPEC = "  sessions: {memory: {embeddings: {enabled: true, model: %s}}}\n"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as server:
        yield server


def fitted(settings: Settings, database: Database, agent: Agent, server: EmbeddingServer | None = None) -> Components:
    given = EmbeddingSettings(openai_url=server.url) if server else EmbeddingSettings()
    return made_components(replace(settings, embeddings=given), Agents({"default": agent}, ()), database)


@pytest.mark.cases(
    ("name", "missing"),
    [
        ("openai/small", "LOOM_OPENAI_KEY"),
        ("voyage/small", "LOOM_VOYAGE_KEY"),
        ("local/small", "LOOM_EMBEDDINGS_DIR"),
        ("other/small", "other"),
    ],
)
def test_what_an_embedding_model_lacks_is_named(name: str, missing: str) -> None:
    with pytest.raises(BadSettings, match=missing):
        adapter(name, from_env({}))


def test_a_local_model_is_a_folder_and_no_path(tmp_path: Path) -> None:
    settings = replace(from_env({}), embeddings=EmbeddingSettings(folder=tmp_path))
    assert adapter("local/potion-base-8M", settings).name == "local/potion-base-8M"
    for name in ("local/../etc", "local/a/b", "local/.."):
        with pytest.raises(BadSettings, match="no name of a folder"):
            adapter(name, settings)


def test_ollama_is_where_its_setting_says() -> None:
    found = adapter("ollama/nomic-embed-text", from_env({"OLLAMA_HOST": "box"}))
    assert isinstance(found, HttpEmbedder)
    assert (found.api.url, found.name) == ("http://box:11434", "ollama/nomic-embed-text")


def test_the_tool_is_offered_where_the_file_has_tiers(settings: Settings, database: Database) -> None:
    for agent in (PLAIN, replace(PLAIN, tiers=MemoryTiers()), EMBEDDING):
        made = fitted(settings, database, agent)
        names = {spec.name for spec in made.registry.runtime("default").specs}
        assert ("memory_semantic" in names) is (agent.tiers is not None)
        made.close()


def said(database: Database, *texts: str) -> None:
    claim = running(database, "s1")
    chats = (ChatMessage(("user", "assistant")[n % 2], text) for n, text in enumerate(texts))
    Journal(database).finish(claim, final(said=tuple(message(n, claim, chat=chat) for n, chat in enumerate(chats))))


def test_a_session_is_embedded_and_found_as_its_agents_file_says(
    settings: Settings, database: Database, server: EmbeddingServer
) -> None:
    said(database, "the boat is red", "it is", "and large")
    made = fitted(settings, database, EMBEDDING, server)
    embedders, session = made.registry.embedders, Sessions(database).get(WORKSPACE, "s1")
    work = MessageEmbedding(embedders, MessageVectors(database), Budgets(database), Stopping(1.0), lambda: NOW_MS)
    assert work.embed(session) == Progress(3)
    assert server.inputs == [["the boat is red", "it is", "and large"]]
    search = SessionSearch(Sessions(database), Search(database), embedders)
    assert search.session(WORKSPACE, "s1", "a red boat", limit=1)[0].snippet == "the boat is red"
    assert server.inputs[1:] == [["a red boat"]]
    assert search.session(WORKSPACE, "s1", "?", limit=1) == ()
    made.close()


def test_clients_search_by_words_where_the_process_has_no_key(settings: Settings, database: Database) -> None:
    said(database, "the boat is red")
    made = fitted(settings, database, EMBEDDING)
    search = SessionSearch(Sessions(database), Search(database), made.registry.embedders)
    assert len(search.session(WORKSPACE, "s1", "red boat", limit=9)) == 1
    with pytest.raises(ProviderFailed, match="LOOM_OPENAI_KEY"):
        made.registry.embedders.embedder(MODEL).embed(["x"], kind="query", timeout_s=1, may_be_sent=lambda: True)
    made.close()


def test_a_missing_key_a_missing_folder_and_a_provider_that_is_not_there_are_reported(
    told: Told, server: EmbeddingServer
) -> None:
    [missing] = told(SPEC % MODEL)
    assert missing.startswith("a.yaml:5: agent a: spec.sessions.memory.embeddings.model: ")
    assert "LOOM_OPENAI_KEY" in missing
    assert told(SPEC % "scripted/hash", reaches_out=True) == []
    assert told(SPEC % MODEL, reaches_out=True, LOOM_OPENAI_URL=server.url) == []
    assert told(SPEC % MODEL, LOOM_OPENAI_URL="http://127.0.0.1:9") == []
    [unreachable] = told(SPEC % MODEL, reaches_out=True, LOOM_OPENAI_URL="http://127.0.0.1:9")
    assert "cannot be reached" in unreachable
