"""Search in a session for clients: by words, and by meaning where the session's agent has embeddings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from loom_worker.core.errors import NotFound
from loom_worker.core.values.pages import Hit
from loom_worker.core.values.sessions import Session
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.tools import Caller
from loom_worker.memory.semantic import WORDS_DEPTH, SemanticSearch
from loom_worker.store.search import Search
from loom_worker.store.search_words import terms
from loom_worker.store.sessions import Sessions


class Semantics(Protocol):
    """Where the embeddings of a session's agent are found (``runtime/embedders.py``: Embedders)."""

    def of_session(self, session: Session) -> tuple[SemanticSearch | None, Caller]:
        """What is fused with a search by words, None: nothing; and on whose behalf."""


@dataclass(frozen=True, slots=True)
class SessionSearch:
    """Searches sessions of a tenant."""

    sessions: Sessions
    search: Search
    semantics: Semantics

    def session(
        self, tenant: Tenant, session_id: str, question: str, *, limit: int, is_apart: bool = False
    ) -> tuple[Hit, ...]:
        """The messages of a session that match a question, the best first; none for a question without words.

        Args:
            is_apart: of the hits within one passage only the best one is returned.

        Raises:
            NotFound: the tenant has no such session.
        """
        session = self.sessions.get(tenant, session_id)
        semantic, caller = self.semantics.of_session(session)
        if semantic is None or not terms(question):
            return self.search.session(tenant, session_id, question, limit=limit, is_apart=is_apart)
        most = max(limit, WORDS_DEPTH)
        try:
            found = self.search.scope(session.lane, question, scope="session", limit=most, is_apart=is_apart)
            fused = [
                each.hit for each in semantic.with_near(found, question, caller, limit=most if is_apart else limit).hits
            ]
            return tuple(_apart(fused) if is_apart else fused)[:limit]
        except NotFound as error:  # deleted meanwhile; what was looked for has a name for the client
            raise NotFound(f"There is no session {session_id!r}.") from error


def _apart(hits: Sequence[Hit]) -> Iterator[Hit]:
    """The hits that stand in no passage of a better one."""
    shown: set[str] = set()
    for hit in hits:
        if hit.message_id not in shown:
            yield hit
            shown |= {each.message_id for each in hit.passage}
