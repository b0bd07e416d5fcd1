"""All agents that turns may name: those of agents' files, and those that workflows define themselves."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from loom_worker.agents.load import DEFAULT, Agents, LiveAgents
from loom_worker.agents.versions import RecordedAgents
from loom_worker.core.values.agents import Agent, Content
from loom_worker.core.values.learned import AS_ACTIVATED, LearnedPolicy


class AgentSource(Protocol):
    """Agents as they are at a moment (``Agents``, ``LiveAgents``, ``RecordedAgents``, ``KnownAgents``)."""

    def current(self, wanted: str = DEFAULT) -> Agents:
        """The agents as of a moment ago; as of now if ``wanted`` was not among them."""

    def kept(self, name: str, version: str | None) -> Agent | None:
        """An agent in the version that a session keeps; None: there is no such agent any more.

        Args:
            version: a stored version; None: as the agent's file is now.

        Raises:
            LoomError: that version cannot be read, or is refused.
        """


class DefinedAgents(Protocol):
    """Agents that other files define (``workflows/load.py``: LiveWorkflows)."""

    def agents(self, wanted: str) -> Mapping[str, Agent]:
        """By name, ``workflow:agent``; as of now if ``wanted`` was not among them a moment ago."""

    def share(self, content: Content) -> None:
        """Compare them with those of other processes from now on."""


class KnownAgents:
    """Both. A name with a colon is one of a workflow's, for no other agent can have it."""

    def __init__(self, own: LiveAgents | RecordedAgents, inline: DefinedAgents) -> None:
        self._own = own
        self._inline = inline

    def share(self, content: Content) -> None:
        self._own.share(content)
        self._inline.share(content)

    def current(self, wanted: str = DEFAULT) -> Agents:
        """Those of workflows are among them only if one is wanted."""
        if ":" not in wanted:
            return self._own.current(wanted)
        agents = self._own.current()
        return replace(agents, agents={**agents.agents, **self._inline.agents(wanted)})

    def kept(self, name: str, version: str | None) -> Agent | None:
        """Agents of workflows follow their files."""
        return self._own.kept(name, version) if ":" not in name else self.find(name)

    def find(self, name: str) -> Agent | None:
        return self.current(name).agents.get(name)

    def learned(self, name: str) -> LearnedPolicy:
        """What the agent's file says of its learned layer; that of no file, what is activated holds."""
        agent = self.find(name)
        return AS_ACTIVATED if agent is None else agent.learned
