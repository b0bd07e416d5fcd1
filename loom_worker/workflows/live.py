"""Workflows that follow their files."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from loom_worker.agents.load import files_of
from loom_worker.core.live_files import LOOK_S, SETTLE_S, LiveFiles
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.problems import Problem
from loom_worker.core.values.workflows import Workflow
from loom_worker.workflows.load import Workflows, load, used_folder

__all__ = ["LOOK_S", "PART", "SETTLE_S", "LiveWorkflows"]

PART = "workflows"
"""Their name among the content that all processes must have alike."""


@dataclass(frozen=True, slots=True)
class _WorkflowFiles:
    folder: Path | None
    shipped: Path | None
    part: str = PART

    def files(self) -> list[Path]:
        return files_of(used_folder(self.folder, self.shipped))

    def load(self) -> Workflows:
        return load(used_folder(self.folder, self.shipped))

    def entries(self, found: Workflows) -> Mapping[str, Workflow]:
        return found.workflows

    def with_entries(
        self, found: Workflows, entries: Mapping[str, Workflow], refused: Mapping[str, Problem]
    ) -> Workflows:
        return replace(found, workflows=entries, refused=refused)


class LiveWorkflows(LiveFiles[Workflows]):
    """Workflows as their files are; an error in a file leaves its workflows as they last were."""

    def __init__(
        self,
        folder: Path | None,
        *,
        shipped: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """Read them, or those of another folder while there are none; an error in a file is logged, not raised."""
        super().__init__(_WorkflowFiles(folder, shipped), clock=clock, wall_clock=wall_clock, pause=pause)

    def current(self, wanted: str | None = None) -> Workflows:
        """The workflows as of a moment ago; as of now if ``wanted`` was not among them: another process may know it."""
        return self.latest(wanted)

    def agents(self, wanted: str) -> Mapping[str, Agent]:
        """The agents that the files define, by ``workflow:agent``; as of now if ``wanted`` was not among them."""
        found = _agents(self.latest(None))
        return found if wanted in found else _agents(self.latest(wanted))


def _agents(found: Workflows) -> dict[str, Agent]:
    return {name: agent for workflow in found.workflows.values() for name, agent in workflow.agents.items()}
