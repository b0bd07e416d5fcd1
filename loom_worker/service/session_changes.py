"""What a client may change of a session: within what the session's agent allows, in the version that it keeps."""

from dataclasses import dataclass, replace

from loom_worker.agents.known import AgentSource
from loom_worker.core.errors import BadFile, Flaw, Invalid, LoomError
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.sessions import SessionPatch
from loom_worker.core.values.tenants import Tenant
from loom_worker.service import allowed
from loom_worker.service.agent_versions import AgentCatalog
from loom_worker.service.context_report import ContextReport
from loom_worker.store.sessions import Sessions
from loom_worker.turn.agent_runtime import AgentRuntimes


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
        agent = allowed.named(self.agents.current(name), name)
        if patch.agent is not None and patch.agent.startswith(f"{name}@"):
            wanted = patch.agent.removeprefix(f"{name}@")
            version = self.versions.chosen(tenant, name, wanted, may_choose_any=may_choose_any)
            patch = replace(patch, version=version)
        if patch.tools is not None or patch.backend is not None:
            agent = self._kept(agent, version)
        allowed.check(patch, agent, () if patch.tools is None else self.tools(name, version))
        if patch.kernel:
            self.contexts.check_kernel(name, patch.kernel)
        return patch

    def tools(self, agent: str, version: str | None) -> tuple[str, ...]:
        """The names of an agent's tools; raises Invalid if it cannot work."""
        try:
            return tuple(tool.spec.name for tool in self.runtimes.tools(agent, version))
        except LoomError as error:
            raise _broken(agent, error) from error

    def _kept(self, agent: Agent, version: str | None) -> Agent:
        try:
            return self.agents.kept(agent.name, version) or agent
        except BadFile as error:
            raise _broken(agent.name, error) from error


def _broken(agent: str, error: LoomError) -> Invalid:
    return Invalid(f"The agent {agent!r} cannot work: {error}", (Flaw("/agent", "cannot work"),))
