"""Agents that follow their files."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from loom_worker.agents.load import DEFAULT, Agents, files_of, load
from loom_worker.core.live_files import LOOK_S, SETTLE_S, LiveFiles
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.problems import Problem

__all__ = ["LOOK_S", "PART", "SETTLE_S", "LiveAgents"]

PART = "agents"
"""Their name among the content that all processes must have alike."""


@dataclass(frozen=True, slots=True)
class _AgentFiles:
    folder: Path | None
    part: str = PART

    def files(self) -> list[Path]:
        return files_of(self.folder)

    def load(self) -> Agents:
        return load(self.folder)

    def entries(self, found: Agents) -> Mapping[str, Agent]:
        return found.agents

    def with_entries(self, found: Agents, entries: Mapping[str, Agent], refused: Mapping[str, Problem]) -> Agents:
        return replace(found, agents=entries, refused=refused)


class LiveAgents(LiveFiles[Agents]):
    """Agents as their files are; an error in a file leaves its agents as they last were."""

    def __init__(
        self,
        folder: Path | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """Read them; an error in a file is logged, not raised."""
        super().__init__(_AgentFiles(folder), clock=clock, wall_clock=wall_clock, pause=pause)

    def current(self, wanted: str = DEFAULT) -> Agents:
        """The agents as of a moment ago; as of now if ``wanted`` was not among them: another process may know it."""
        return self.latest(wanted)

    def kept(self, name: str, version: str | None) -> Agent | None:
        """The agent of that name as its file is now, for nobody stores what it was."""
        return self.current(name).agents.get(name)
