"""What of a workflow cannot work with the agents at hand, each with its line. Pure."""

from collections.abc import Iterator

from loom_worker.agents.load import Agents
from loom_worker.core.text import did_you_mean
from loom_worker.core.values.problems import Problem
from loom_worker.core.values.workflows import Workflow, agent_ids


def faults(workflow: Workflow, agents: Agents) -> Iterator[Problem]:
    """Report agents that do not exist, or whose file is broken, each once; those of the file itself exist."""
    reported: set[str] = set()
    for path, name in agent_ids(workflow.pattern):
        if name in workflow.agents or name in agents.agents or name in reported:
            continue
        reported.add(name)
        fault = agents.fault(name)
        known = [*agents.agents, *(own.rpartition(":")[2] for own in workflow.agents)]
        advice = "" if fault else did_you_mean(name, known) or "agents are read from LOOM_AGENTS_DIR"
        yield workflow.problem(f"spec.{path}", fault or f"there is no agent {name!r}", advice)
