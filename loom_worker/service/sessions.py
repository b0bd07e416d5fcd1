"""What clients ask of a session: to change it, within what its agent allows, and to search in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from loom_worker.agents.known import AgentSource
from loom_worker.agents.load import Agents
from loom_worker.core.errors import BadFile, Flaw, Invalid, LoomError, NotFound, Unavailable
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.pages import Hit
from loom_worker.core.values.sessions import Session, SessionPatch
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.tools import Caller
from loom_worker.memory.semantic import WORDS_DEPTH, SemanticSearch
from loom_worker.service.agent_versions import AgentCatalog
from loom_worker.service.context_report import ContextReport
from loom_worker.store.search import Search
from loom_worker.store.search_words import terms
from loom_worker.store.sessions import Sessions
from loom_worker.turn.agent_runtime import AgentRuntimes


def named(agents: Agents, name: str) -> Agent:
    """The agent of that name; Invalid: there is none, or its file has an error."""
    if fault := agents.fault(name):
        raise Invalid(fault, (Flaw("/agent", "its file is broken"),))
    if name not in agents.agents:
        known = ", ".join(sorted(agents.agents))
        broken = [str(problem) for problem in agents.problems if Path(problem.file) in agents.unread]
        hint = f" Which agents these files hold is not known: {'; '.join(broken)}." if broken else ""
        raise Invalid(f"There is no agent {name!r}; there are: {known}.{hint}", (Flaw("/agent", "unknown agent"),))
    return agents.agents[name]


def check(patch: SessionPatch, agent: Agent, tools: Sequence[str]) -> None:
    """Raise Invalid, with every flaw and with what is allowed, for a patch that goes beyond the session's agent.

    Args:
        tools: names of those the agent may use.
    """
    flaws = [
        Flaw(f"/tools/{place}", f"its tools are {', '.join(sorted(tools)) or 'none'}")
        for place, name in enumerate(patch.tools or ())
        if name not in tools
    ]
    if patch.backend is not None and patch.backend not in agent.databases:
        flaws.append(Flaw("/backend", f"its databases are {', '.join(agent.databases) or 'none but its own'}"))
    if patch.agent is not None and not patch.agent.startswith(f"{agent.name}@"):
        flaws.append(Flaw("/agent", f"a session keeps its agent, so only versions of {agent.name} can be asked for"))
    if flaws:
        details = sorted({flaw.detail for flaw in flaws})
        raise Invalid(f"The agent {agent.name!r} does not allow that: {'; '.join(details)}.", tuple(flaws))


@dataclass(frozen=True, slots=True)
class SessionChanges:
    """Checks changes of sessions before they are stored."""

    sessions: Sessions
    agents: AgentSource
    runtimes: AgentRuntimes
    contexts: ContextReport
    versions: AgentCatalog

    def checked(self, tenant: Tenant, session_id: str, patch: SessionPatch, *, may_choose_any: bool) -> SessionPatch:
        """The change, with the version of the agent that it names looked up.

        Args:
            may_choose_any: see ``AgentCatalog.chosen``.

        Raises:
            NotFound: the tenant has no such session.
            Invalid: its agent does not allow that, or the kernel is larger than its share of the window.
            Forbidden, Conflict: it may not move to that version; see ``AgentCatalog.chosen``.
        """
        if patch.tools is None and patch.backend is None and patch.agent is None and not patch.kernel:
            return patch
        session = self.sessions.get(tenant, session_id)
        name, version = session.agent, session.agent_version
        agent = named(self.agents.current(name), name)
        if patch.agent is not None and patch.agent.startswith(f"{name}@"):
            wanted = patch.agent.removeprefix(f"{name}@")
            version = self.versions.chosen(tenant, name, wanted, may_choose_any=may_choose_any)
            patch = replace(patch, version=version)
        if patch.tools is not None or patch.backend is not None:
            agent = self._kept(agent, version)
        check(patch, agent, () if patch.tools is None else self.tools(name, version))
        if patch.kernel:
            self.contexts.check_kernel(name, patch.kernel)
        return patch

    def tools(self, agent: str, version: str | None) -> tuple[str, ...]:
        """The names of an agent's tools; raises Invalid if it cannot work."""
        try:
            return tuple(tool.spec.name for tool in self.runtimes.tools(agent, version))
        except Unavailable:
            raise
        except LoomError as error:
            raise _broken(agent, error) from error

    def _kept(self, agent: Agent, version: str | None) -> Agent:
        try:
            return self.agents.kept(agent.name, version) or agent
        except BadFile as error:
            raise _broken(agent.name, error) from error


def _broken(agent: str, error: LoomError) -> Invalid:
    return Invalid(f"The agent {agent!r} cannot work: {error}", (Flaw("/agent", "cannot work"),))


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
