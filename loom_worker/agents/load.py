"""Agents from YAML files (API: agent YAML); an error in a file affects the agents of that file alone."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loom_worker.agents import judges, memory, remote, tiers, work
from loom_worker.agents.schedules import schedules_of
from loom_worker.core.fields import Fields, InvalidField
from loom_worker.core.values.agents import PROVIDERS, Agent
from loom_worker.core.values.json import Json
from loom_worker.core.values.problems import Problem, line_near
from loom_worker.core.yaml_files import MAX_BYTES, Document, Unreadable, marked_documents

DEFAULT = "default"
"""The agent of a session that names none."""
_SUFFIXES = (".yaml", ".yml")
_API_VERSION = "loom/v1"
_NAMES_DEFAULT = re.compile(r"\bname[\"']?\s*:\s*[\"']?default\b(?![.-])")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAMED = re.compile(rf"\bname[\"']?\s*:\s*[\"']?({_NAME.pattern})")
"""What may be the name of an agent in a text that is no YAML."""


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
    shipped = _file(Path(__file__).with_name("default.yaml"))
    problems = [*shipped.problems]
    agents: dict[str, Agent] = {}
    refused: dict[str, Problem] = {}
    suspected: dict[str, Problem] = {}
    unread: list[Path] = []
    if folder is not None and not folder.is_dir():
        problems.append(Problem("no such folder", file=str(folder)))
    problems += _skipped(folder)
    for path in files_of(folder):
        found = _file(path)
        problems += found.problems
        refused |= found.refused
        suspected |= found.suspected
        unread += [path] if found.is_unread else []
        for agent in found.agents:
            if agent.name in agents:
                file, _, line = agent.source.rpartition(":")
                text = f"agent {agent.name} is already defined in {agents[agent.name].source}"
                problems.append(Problem(text, "rename one of them, or take it out", file, int(line)))
            agents.setdefault(agent.name, agent)
    known = {agent.name: agent for agent in shipped.agents} | agents
    kept = {name: agent for name, agent in known.items() if name not in refused}
    # OpenAPI documents of agents are YAML too, and it is no error that they define no agent.
    backends = ((agent.file, agent.backend.openapi) for agent in known.values() if agent.backend is not None)
    openapi = {Path(file).parent / document for file, document in backends if document is not None}
    reported = tuple(problem for problem in problems if Path(problem.file) not in openapi)
    frozen = MappingProxyType
    return Agents(frozen(kept), reported, frozen(refused), frozenset(unread), frozen(suspected))


@dataclass(slots=True)
class _AgentFile:
    """What one file holds."""

    agents: list[Agent] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    refused: dict[str, Problem] = field(default_factory=dict)
    suspected: dict[str, Problem] = field(default_factory=dict)
    is_unread: bool = False


def files_of(folder: Path | None) -> list[Path]:
    """The files of a folder that may define agents, in the order in which they are read."""
    try:
        entries = list(os.scandir(folder)) if folder else []
    except OSError:
        return []
    named = [entry for entry in entries if os.path.splitext(entry.name)[1] in _SUFFIXES]
    return sorted(Path(each) for each in named if (os.path.isfile(each) if each.is_symlink() else each.is_file()))


def _skipped(folder: Path | None) -> Iterator[Problem]:
    """Files that look like those of agents and have other suffixes."""
    for path in sorted(folder.glob("*")) if folder else ():
        is_alike = any(suffix.lower() in _SUFFIXES for suffix in path.suffixes)
        if is_alike and path.suffix not in _SUFFIXES and path.is_file():
            yield Problem("is not read", "agents' files end in .yaml or .yml", str(path), is_warning=True)


def _file(path: Path) -> _AgentFile:
    found = _AgentFile()
    try:
        documents = marked_documents(path)
    except Unreadable as error:
        return _unread(path, Problem(error.reason, file=str(path), line=error.args[1]))
    if not documents:
        found.problems.append(Problem("no agent in it", file=str(path), is_warning=True))
        found.suspected[path.stem] = found.problems[-1]
    for document in documents:
        try:
            agent, problems = _agent(path, document)
        except InvalidField as error:
            _refuse(found, path, document, error)
        else:
            found.agents.append(agent)
            found.problems += problems
    return found


def _unread(path: Path, problem: Problem) -> _AgentFile:
    """A file of which at most the text is known."""
    text = ""
    with contextlib.suppress(OSError), path.open("rb") as file:
        text = file.read(MAX_BYTES).decode("utf-8", "replace")
    is_default = path.stem == DEFAULT or _NAMES_DEFAULT.search(text) is not None
    seen = dict.fromkeys((path.stem, *_NAMED.findall(text)), problem)
    refused = {DEFAULT: problem} if is_default else {}
    return _AgentFile(problems=[problem], refused=refused, suspected=seen, is_unread=True)


def _refuse(found: _AgentFile, path: Path, document: Document, error: InvalidField) -> None:
    """Note a document with an error, under the name that it gives."""
    content = document.content if isinstance(document.content, dict) else {}
    head = content.get("agent", content.get("metadata"))
    name = head.get("name") if isinstance(head, dict) else None
    name = name if isinstance(name, str) else None
    line = line_near(document.lines(), error.path) or document.line
    problem = Problem(error.reason, file=str(path), line=line, agent=name or "", field=error.path)
    found.problems.append(problem)
    found.suspected.setdefault(name or path.stem, problem)
    if name is not None and content.get("kind", "Agent") == "Agent":
        found.refused[name] = problem


def _agent(path: Path, document: Document) -> tuple[Agent, list[Problem]]:
    """Build one agent, and report which of its keys have no effect.

    Raises:
        InvalidField: a value cannot be used.
    """
    plain, root = _described(document.content)
    agent = replace(
        plain,
        unknown_keys=tuple(key for key, _ in root.unknown()),
        raw=document.content or {},
        source=f"{path}:{document.line}",
        lines=document.lines(),
    )
    return agent, sorted(_without_effect(agent, root, document), key=lambda problem: problem.line)


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
    """The agent that a document describes, without its place, and the document's fields.

    Raises:
        InvalidField: a value cannot be used.
    """
    root = Fields(content, what="an agent")
    if "agent" in root:
        meta = spec = root.under("agent")
    else:
        kind, version = root.text("kind"), root.text("apiVersion")
        if kind != "Agent":
            raise InvalidField(("kind",), f"Agent is needed, not {kind or 'nothing'}")
        if version != _API_VERSION:
            raise InvalidField(("apiVersion",), f"{_API_VERSION} is needed, not {version or 'nothing'}")
        meta, spec = root.under("metadata"), root.under("spec")
    name = meta.text("name") or ""
    if not _NAME.fullmatch(name):
        raise meta.invalid("name", "a name of letters, digits, '.', '_' and '-', at most 128,", name)
    meta.get("labels")
    return built(meta, spec, name), root


def _without_effect(agent: Agent, root: Fields, document: Document) -> Iterator[Problem]:
    for path, similar in root.unknown():
        advice = f"did you mean {similar}?" if similar else "it has no effect"
        yield agent.problem(path, "unknown key", advice, is_warning=True)
    for path in root.unused():
        yield agent.problem(path, "without effect yet", is_warning=True)
    for key, line in document.repeated():
        text = f"{key} stands there twice, and this one counts"
        yield Problem(text, "take one of them out", agent.file, line, agent.name, is_warning=True)


def built(meta: Fields, spec: Fields, name: str) -> Agent:
    """The agent that these fields describe; ``meta`` holds its version and description."""
    config, llm, a2a = spec.under("config"), spec.under("llm"), spec.under("a2a")
    patterns, skills = config.under("patterns"), config.under("skills")
    has_tiers = "memory" in spec.under("sessions")
    spec.keep("observability")
    chosen = work.toolbox(spec)
    given: dict[str, Any] = {
        "version": meta.text("version"),
        "description": meta.text("description"),
        "system_prompt": spec.text("system_prompt"),
        "provider": llm.choice("provider", PROVIDERS),
        "model": llm.text("model"),
        "max_tokens": llm.whole("max_tokens"),
        "max_context_tokens": llm.whole("max_context_tokens"),
        "reserved_output_tokens": llm.whole("reserved_output_tokens"),
        "stop_sequences": llm.texts("stop_sequences"),
        "tools": chosen.allowed,
        "custom": chosen.custom,
        "mcp_servers": chosen.servers,
        "allows_mcp": chosen.allows_mcp,
        "is_read_only": config.flag("read_only"),
        "approval": work.approval(config),
        "max_llm_calls": config.whole("max_turns"),
        "max_tool_calls": config.whole("max_tool_executions"),
        "timeout_s": config.number("timeout_seconds"),
        "budget": work.budget(spec),
        "guardrails": work.guardrails(spec),
        "may_call": spec.texts("may_call"),
        "patterns_enabled": patterns.flag("enabled"),
        "min_confidence": patterns.number("min_confidence", most=1.0),
        "max_patterns_per_turn": patterns.whole("max_patterns_per_turn", least=0),
        "reranks_patterns": patterns.flag("rerank"),
        "skills_enabled": skills.flag("enabled"),
        "max_skills_per_turn": skills.whole("max_skills_per_turn", least=0),
        "memory": tiers.active_window(spec, memory.policy(spec.under("memory"), by_number=has_tiers)),
        "tiers": tiers.tiers(spec),
        "learned": work.learned(spec),
        "compressor": tiers.summary_model(spec),
        "judges": judges.panel(spec),
        "schedules": schedules_of(spec, name),
        "judge_model": tiers.model_choice(spec.under("judge_llm")),
        "remote": remote.remote(a2a, spec),
        "card_skills": remote.card_skills(a2a),
    }
    known = {key: value for key, value in given.items() if value is not None}
    backend = work.backend(spec)
    if "remote" in known:
        return Agent(name=name, backend=None, **remote.answered_elsewhere(known))
    return Agent(name=name, backend=backend, **known)
