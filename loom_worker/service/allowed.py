"""Which agents there are, and what of its agent a session may change: tools and data from its own lists only. Pure."""

from collections.abc import Sequence
from pathlib import Path

from loom_worker.agents.load import Agents
from loom_worker.core.errors import Flaw, Invalid
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.sessions import SessionPatch


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
