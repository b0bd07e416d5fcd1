"""Agents that follow their files."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from loom_worker.agents.load import DEFAULT, Agents, files_of, load
from loom_worker.core.live_files import Clock, LiveFiles, Marks, marks_of
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.problems import Problem


class LiveAgents(LiveFiles[Agents]):
    """Agents as their files are; an error in a file leaves its agents as they last were."""

    def __init__(self, folder: Path | None, *, clock: Clock = time) -> None:
        self._folder = folder
        super().__init__("agents", clock=clock)

    def current(self, wanted: str = DEFAULT) -> Agents:
        return self.latest(wanted)

    def kept(self, name: str, version: str | None) -> Agent | None:
        """The agent of that name as its file is now, for nobody stores what it was."""
        return self.current(name).agents.get(name)

    def _marks(self) -> Marks:
        return marks_of(files_of(self._folder))

    def _load(self) -> Agents:
        return load(self._folder)

    def _entries(self, found: Agents) -> Mapping[str, Agent]:
        return found.agents

    def _with(self, found: Agents, entries: Mapping[str, Agent], refused: Mapping[str, Problem]) -> Agents:
        return replace(found, agents=entries, refused=refused)
