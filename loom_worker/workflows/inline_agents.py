"""The agents that a workflow file defines itself: an entry of ``agents`` has the keys of an agent's ``spec``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loom_worker.agents.load import built as agent_from  # the one reading of an agent's keys
from loom_worker.core.fields import Fields, InvalidField
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.json import Json
from loom_worker.workflows.members import defines_agent, key_of, listed

MOST_NAME = 63
"""Characters of an agent's name within its file; with the workflow's before it, it is as long as an agent's may be."""


def inline_agents(spec: Json, source: str, lines: Mapping[str, int]) -> tuple[dict[str, Agent], list[Fields]]:
    """The agents of a spec by the name under which they work, ``workflow:agent``, and the entries of its lists.

    Args:
        source: ``file:line`` of its document.
        lines: of its paths.

    Raises:
        InvalidField: a value that cannot be used.
    """
    agents: dict[str, Agent] = {}
    entries = []
    for path, entry in listed(spec):
        fields = Fields(entry, (path,))
        name_key = key_of(entry) or "name"
        own_name = fields.required(name_key)
        for key in ("id", "name", "agent", "description"):
            fields.get(key)
        fields.keep("path", "role", "prompt_template")
        if defines_agent(entry):
            own_name = fields.name(name_key, most=MOST_NAME)
            agent = agent_from(fields, fields, fields.required("agent"))
            if agent.name in agents:
                raise InvalidField((path, name_key), f"another agent has the name {own_name!r}")
            agents[agent.name] = _placed(agent, entry, path, source, lines)
        entries.append(fields)
    return agents, entries


def acquainted(agents: Mapping[str, Agent], members: Sequence[str]) -> dict[str, Agent]:
    """Agents that know each other: those that name none to call may call all who work with them.

    Args:
        members: of a coordination, by the names under which they work; empty: nobody works with them.
    """
    own = {name.rpartition(":")[2]: name for name in agents}
    return {
        name: replace(
            agent,
            may_call=tuple(own.get(each, each) for each in agent.may_call) or tuple(m for m in members if m != name),
        )
        for name, agent in agents.items()
    }


def _placed(agent: Agent, entry: Json, path: str, source: str, lines: Mapping[str, int]) -> Agent:
    """An agent that knows where it stands, as if its entry were a file of its own."""
    own = {
        f"agent{at[len(path) :]}": line
        for at, line in lines.items()
        if at == path or at.startswith((f"{path}.", f"{path}["))
    }
    begin = own.get("agent", 0)
    file = source.rpartition(":")[0]
    return replace(agent, raw={"agent": entry}, source=f"{file}:{begin}", lines=own)
