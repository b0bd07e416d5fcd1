"""Workflows and what runs them, on a real database; agents are whatever a test says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.json import Json
from loom_worker.core.values.workflows import Workflow
from loom_worker.store.database import Database
from loom_worker.store.run_journal import RunJournal
from loom_worker.webhook.body import WebhookBodies
from loom_worker.workflows.load import Workflows
from loom_worker.workflows.plan import Planner
from loom_worker.workflows.spec import pattern_from


@dataclass
class NamedAgents:
    """Agents by name; one that is not among them has nothing of its own."""

    agents: Mapping[str, Agent] = field(default_factory=dict)

    def find(self, name: str) -> Agent | None:
        return self.agents.get(name)


def run_journal(database: Database, limits: LimitSettings, agents: Mapping[str, Agent] | None = None) -> RunJournal:
    """The journal of runs, planned by the real planner."""
    return RunJournal(database, limits, Planner(NamedAgents(agents or {}), WebhookBodies("http://loom")))


def workflow(spec: Json, name: str = "flow", **fields: Any) -> Workflow:
    """A workflow out of its ``spec``."""
    return Workflow(name, pattern_from(spec), spec, **fields)


def workflows(*known: Workflow) -> Workflows:
    """These workflows, as their files would be."""
    return Workflows({each.name: each for each in known})


def pipeline(*prompts: str, agents: Sequence[str] = ("default",), **more: Any) -> Json:
    """A pipeline with one stage for each prompt; agents take turns."""
    stages = [{"agent_id": agents[n % len(agents)], "prompt_template": prompt} for n, prompt in enumerate(prompts)]
    return {"type": "pipeline", "initial_prompt": "Begin.", "stages": stages, **more}
