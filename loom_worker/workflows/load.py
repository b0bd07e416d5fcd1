"""Workflows from YAML files (docs/workflows.md); an error in a file affects the workflows of that document alone."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loom_worker.agents.folder import DefiningFiles
from loom_worker.agents.load import Agents, files_of
from loom_worker.core.live_files import Clock, LiveFiles, Marks, marks_of
from loom_worker.core.text import did_you_mean
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.problems import Problem
from loom_worker.core.values.workflows import Workflow, agent_ids
from loom_worker.core.yaml_files import Document
from loom_worker.workflows.document import read


@dataclass(frozen=True, slots=True)
class Workflows:
    """All workflows of a folder."""

    workflows: Mapping[str, Workflow] = field(default_factory=lambda: MappingProxyType({}))
    """By name."""
    problems: tuple[Problem, ...] = ()
    """What was left out or is not known."""
    refused: Mapping[str, Problem] = field(default_factory=lambda: MappingProxyType({}))
    """Names that a file defines and that are not among ``workflows`` because of an error in it, with that error."""
    unread: frozenset[Path] = frozenset()
    """Files that cannot be read, so that their workflows are not known."""
    suspected: Mapping[str, Problem] = field(default_factory=lambda: MappingProxyType({}))
    """Names that a file with an error seems to define; they explain why a workflow is missing, and remove none."""

    def fault(self, name: str) -> str:
        """Why this workflow is missing although it has a file; empty if it is not missing, or has none."""
        problem = self.refused.get(name) or (None if name in self.workflows else self.suspected.get(name))
        return f"The workflow {name!r} cannot run, its file is broken: {problem}" if problem else ""

    def current(self, wanted: str | None = None) -> "Workflows":
        """These workflows; ``LiveWorkflows`` follow their files."""
        return self


class _WorkflowFiles(DefiningFiles[Workflow]):
    noun = "workflow"

    def read(self, path: Path, document: Document) -> tuple[Workflow, list[Problem]]:
        return read(path, document)

    def head(self, content: dict[str, Any]) -> tuple[Any, bool]:
        return content.get("metadata"), content.get("kind") == "Workflow"


def load(folder: Path | None) -> Workflows:
    """Read every ``*.yaml`` and ``*.yml`` of a folder, several workflows per file; None gives none.

    A workflow with a value of the wrong type is left out. A key that Loom does not know or use is kept and reported.
    """
    found = _WorkflowFiles()
    found.add_folder(folder, files_of(folder))
    kept = {name: workflow for name, workflow in found.entries.items() if name not in found.refused}
    return Workflows(
        MappingProxyType(kept),
        tuple(found.problems),
        MappingProxyType(found.refused),
        frozenset(found.unread),
        MappingProxyType(found.suspected),
    )


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


def used_folder(own: Path | None, shipped: Path | None) -> Path | None:
    """The user's folder; the package's where none is named, or no file is in it, as in a mount that is empty."""
    return own if files_of(own) else shipped or own


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
