"""Workflows that follow their files."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from loom_worker.agents.load import files_of
from loom_worker.core.live_files import Clock, LiveFiles, Marks, marks_of
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.problems import Problem
from loom_worker.core.values.workflows import Workflow
from loom_worker.workflows.load import Workflows, load, used_folder


class LiveWorkflows(LiveFiles[Workflows]):
    """Workflows as their files are; an error in a file leaves its workflows as they last were."""

    def __init__(self, folder: Path | None, *, shipped: Path | None = None, clock: Clock = time) -> None:
        self._folders = folder, shipped
        super().__init__("workflows", clock=clock)

    def current(self, wanted: str | None = None) -> Workflows:
        """The workflows as of a moment ago; as of now if ``wanted`` was not among them: another process may know it."""
        return self.latest(wanted)

    def agents(self, wanted: str) -> Mapping[str, Agent]:
        """The agents that the files define, by ``workflow:agent``; as of now if ``wanted`` was not among them."""
        found = _agents(self.latest(None))
        return found if wanted in found else _agents(self.latest(wanted))

    def _marks(self) -> Marks:
        return marks_of(files_of(used_folder(*self._folders)))

    def _load(self) -> Workflows:
        return load(used_folder(*self._folders))

    def _entries(self, found: Workflows) -> Mapping[str, Workflow]:
        return found.workflows

    def _with(self, found: Workflows, entries: Mapping[str, Workflow], refused: Mapping[str, Problem]) -> Workflows:
        return replace(found, workflows=entries, refused=refused)


def _agents(found: Workflows) -> dict[str, Agent]:
    return {name: agent for workflow in found.workflows.values() for name, agent in workflow.agents.items()}
