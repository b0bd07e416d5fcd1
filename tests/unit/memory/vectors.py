"""Sessions whose messages are embedded, and embedders that do as a test says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loom_worker.core.stopping import Stopping
from loom_worker.core.values.sessions import Session
from loom_worker.core.values.tiers import Scope
from loom_worker.llm.embeddings import Embedded, Embedder, MayBeSent, TextKind
from loom_worker.llm.embeddings_local import HashedWords
from loom_worker.memory.embed import EmbeddingRules, MessageEmbedding
from loom_worker.memory.semantic import QueryEmbedder, SemanticSearch
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.ledger import Ledger
from loom_worker.store.search import Search
from loom_worker.store.vectors import MessageVectors
from tests.unit.memory.recall.made import words
from tests.unit.store.made import NOW_MS


@dataclass
class Told(HashedWords):
    """Hashes words, unless it is told to raise something for some texts; keeps what it was asked."""

    fails: Callable[[Sequence[str]], Exception | None] = lambda texts: None
    name: str = "scripted/hash"
    asked: list[tuple[str, ...]] = field(default_factory=list)
    before: Callable[[], object] = lambda: None
    """What happens while the provider is at it."""

    def embed(self, texts: Sequence[str], *, kind: TextKind, timeout_s: float, may_be_sent: MayBeSent) -> Embedded:
        """See Embedder.embed."""
        assert may_be_sent()
        self.asked.append(tuple(texts))
        self.before()
        error = self.fails(texts)
        if error is not None:
            raise error
        return super().embed(texts, kind=kind, timeout_s=timeout_s, may_be_sent=may_be_sent)


@dataclass
class Agents:
    """All sessions are of one agent."""

    embedder: Embedder | None

    def rules(self, session: Session) -> EmbeddingRules | None:
        """See EmbeddingAgents."""
        return None if self.embedder is None else EmbeddingRules(self.embedder, words)


def embedding(database: Database, embedder: Embedder | None) -> MessageEmbedding:
    """What embeds messages."""
    vectors, budgets = MessageVectors(database), Budgets(database)
    return MessageEmbedding(Agents(embedder), vectors, budgets, Stopping(1.0), clock_ms=lambda: NOW_MS)


def searching(database: Database, embedder: Embedder | None, scope: Scope = "session") -> SemanticSearch:
    """What finds messages."""
    query = None
    if embedder is not None:
        query = QueryEmbedder(embedder, words, Budgets(database), Ledger(database), clock_ms=lambda: NOW_MS)
    return SemanticSearch(MessageVectors(database), Search(database), scope, query)
