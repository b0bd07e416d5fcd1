"""Agents from YAML files (API: agent YAML); an error in a file affects the agents of that file alone."""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loom_worker.agents import judges, memory, models, tiers, work
from loom_worker.agents.folder import SUFFIXES as _SUFFIXES
from loom_worker.agents.folder import DefiningFiles, check_kind, without_effect
from loom_worker.agents.schedules import schedules_of
from loom_worker.core.fields import Fields, present
from loom_worker.core.live_files import Clock, LiveFiles, Marks, marks_of
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.json import Json
from loom_worker.core.values.problems import Problem
from loom_worker.core.yaml_files import Document
from loom_worker.judge.checks import response_format

DEFAULT = "default"
"""The agent of a session that names none."""
_NAMES_DEFAULT = re.compile(r"\bname[\"']?\s*:\s*[\"']?default\b(?![.-])")


@dataclass(frozen=True, slots=True)
class Agents:
    """All agents; ``default`` is among them unless a file that should define it is refused."""

    agents: Mapping[str, Agent]
    """By name."""
    problems: tuple[Problem, ...]
    """What was left out or is not known."""
    refused: Mapping[str, Problem] = field(default_factory=dict)
    """Names that a file defines and that are not among ``agents`` because of an error in it, with that error."""
    unread: frozenset[Path] = frozenset()
    """Files that cannot be read, so that their agents are not known."""
    suspected: Mapping[str, Problem] = field(default_factory=dict)
    """Names that a file with an error seems to define; they explain why an agent is missing, and remove none."""

    def fault(self, name: str) -> str:
        """Why this agent is missing although it has a file; empty if it is not missing, or has none."""
        problem = self.refused.get(name) or (None if name in self.agents else self.suspected.get(name))
        return f"The agent {name!r} cannot work, its file is broken: {problem}" if problem else ""

    def current(self, wanted: str = DEFAULT) -> "Agents":
        """These agents; ``LiveAgents`` follow their files."""
        return self

    def kept(self, name: str, version: str | None) -> Agent | None:
        """The agent of that name, for there is only one version of it here; None: there is none."""
        return self.agents.get(name)


def load(folder: Path | None) -> Agents:
    """Read every ``*.yaml`` and ``*.yml`` of a folder, several agents per file; None gives the packaged agent alone.

    An agent with a value of the wrong type is left out, and nothing takes its place: another agent of that name, the
    packaged one too, might do what this one must not. A key that Loom does not know is kept in ``raw`` and reported.
    """
    shipped, found = _AgentFiles(), _AgentFiles()
    shipped.add(Path(__file__).with_name("default.yaml"))
    found.add_folder(folder, files_of(folder))
    known = shipped.entries | found.entries
    kept = {name: agent for name, agent in known.items() if name not in found.refused}
    # OpenAPI documents of agents are YAML too, and it is no error that they define no agent.
    backends = ((agent.file, agent.backend.openapi) for agent in known.values() if agent.backend is not None)
    openapi = {Path(file).parent / document for file, document in backends if document is not None}
    problems = (*shipped.problems, *found.problems)
    reported = tuple(problem for problem in problems if Path(problem.file) not in openapi)
    frozen = MappingProxyType
    return Agents(frozen(kept), reported, frozen(found.refused), frozenset(found.unread), frozen(found.suspected))


class _AgentFiles(DefiningFiles[Agent]):
    noun = "agent"

    def read(self, path: Path, document: Document) -> tuple[Agent, list[Problem]]:
        plain, root = _described(document.content)
        agent = replace(
            plain,
            unknown_keys=tuple(key for key, _ in root.unknown()),
            raw=document.content or {},
            source=f"{path}:{document.line}",
            lines=document.lines(),
        )
        return agent, sorted(without_effect(agent, root.unknown(), root.unused(), document), key=attrgetter("line"))

    def head(self, content: dict[str, Any]) -> tuple[Any, bool]:
        return content.get("agent", content.get("metadata")), content.get("kind", "Agent") == "Agent"

    def note_unread(self, path: Path, problem: Problem) -> str:
        text = super().note_unread(path, problem)
        if path.stem == DEFAULT or _NAMES_DEFAULT.search(text):
            self.refused[DEFAULT] = problem
        return text


def files_of(folder: Path | None) -> list[Path]:
    """The files of a folder that may define agents, in the order in which they are read."""
    try:
        entries = list(os.scandir(folder)) if folder else []
    except OSError:
        return []
    named = [entry for entry in entries if os.path.splitext(entry.name)[1] in _SUFFIXES]
    return sorted(Path(each) for each in named if (os.path.isfile(each) if each.is_symlink() else each.is_file()))


def stored(document: Json, *, version: str, source: str) -> Agent:
    """Build an agent from what its file said once.

    Args:
        document: the content of the file's document.
        version: what the stored version is called.
        source: the agent's place as of now; files that it names lie beside it.

    Raises:
        InvalidField: a value cannot be used, at least not by this Loom.
    """
    plain, root = _described(document)
    return replace(
        plain,
        version=version,
        unknown_keys=tuple(key for key, _ in root.unknown()),
        raw=document,
        source=source,
        lines=dict.fromkeys(document, 0),  # where things stood is not known; the keys tell the form it was written in
    )


def _described(content: Any) -> tuple[Agent, Fields]:
    """The agent that a document describes, without its place, and the document's fields."""
    root = Fields(content, what="an agent")
    if "agent" in root:
        meta = spec = root.under("agent")
    else:
        check_kind(root, "Agent")
        meta, spec = root.under("metadata"), root.under("spec")
    name = meta.name(most=128)
    meta.get("labels")
    return built(meta, spec, name), root


def built(meta: Fields, spec: Fields, name: str) -> Agent:
    """The agent that these fields describe; ``meta`` holds its version and description."""
    config, llm, a2a = spec.under("config"), spec.under("llm"), spec.under("a2a")
    patterns, skills = config.under("patterns"), config.under("skills")
    has_tiers = "memory" in spec.under("sessions")
    spec.keep("observability")
    chosen = work.toolbox(spec)
    known = present(
        version=meta.text("version"),
        description=meta.text("description"),
        system_prompt=spec.text("system_prompt"),
        llm=models.answering(llm),
        max_tokens=llm.whole("max_tokens"),
        max_context_tokens=llm.whole("max_context_tokens"),
        reserved_output_tokens=llm.whole("reserved_output_tokens"),
        stop_sequences=models.stop_sequences(llm),
        tools=chosen.allowed,
        custom=chosen.custom,
        mcp_servers=chosen.servers,
        allows_mcp=chosen.allows_mcp,
        is_read_only=config.flag("read_only"),
        approval=work.approval(config),
        max_llm_calls=config.whole("max_turns"),
        max_tool_calls=config.whole("max_tool_executions"),
        timeout_s=config.number("timeout_seconds"),
        budget=work.budget(spec),
        guardrails=work.guardrails(spec),
        may_call=spec.texts("may_call"),
        patterns_enabled=patterns.flag("enabled"),
        min_confidence=patterns.number("min_confidence", most=1.0),
        max_patterns_per_turn=patterns.whole("max_patterns_per_turn", least=0),
        reranks_patterns=patterns.flag("rerank"),
        skills_enabled=skills.flag("enabled"),
        max_skills_per_turn=skills.whole("max_skills_per_turn", least=0),
        memory=tiers.active_window(spec, memory.policy(spec.under("memory"), by_number=has_tiers)),
        tiers=tiers.tiers(spec),
        learned=work.learned(spec),
        compressor=tiers.summary_model(spec),
        response_format=response_format(spec),
        judges=judges.panel(spec),
        schedules=schedules_of(spec, name),
        judge_model=models.beside(spec.under("judge_llm")),
        remote=work.remote(a2a, spec),
        card_skills=work.card_skills(a2a),
    )
    backend = work.backend(spec)
    if "remote" in known:
        return Agent(name=name, backend=None, **{**known, **work.ELSEWHERE})
    return Agent(name=name, backend=backend, **known)


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
