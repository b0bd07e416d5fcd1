"""Agents from YAML files (API: agent YAML); a bad file costs its own agent and no other."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loom_worker.agents import memory, work
from loom_worker.agents.fields import Fields, WrongField
from loom_worker.core.values.agents import Agent, Compressor
from loom_worker.core.values.problems import Problem, line_near
from loom_worker.core.yaml_files import MAX_BYTES, Document, Unreadable, marked_documents

DEFAULT = "default"
"""The agent that a session has unless it names one."""
_SUFFIXES = (".yaml", ".yml")
_PROVIDERS = ("anthropic", "bedrock", "ollama", "scripted")
_API_VERSION = "loom/v1"
_NAMES_DEFAULT = re.compile(r"\bname[\"']?\s*:\s*[\"']?default\b(?![.-])")
_NAMED = re.compile(r"\bname[\"']?\s*:\s*[\"']?([A-Za-z0-9][A-Za-z0-9._-]{0,127})")
"""What may be the name of an agent in a text that is no YAML."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents there are; ``default`` is among them unless a file that should define it is refused."""

    agents: Mapping[str, Agent]
    """By name."""
    problems: tuple[Problem, ...]
    """What was left out or not understood."""
    refused: Mapping[str, Problem] = field(default_factory=dict)
    """Names that a file defines and that are not among ``agents`` for a fault of it, with that problem."""
    unread: frozenset[Path] = frozenset()
    """Files whose agents are not known, for they cannot be read."""
    suspected: Mapping[str, Problem] = field(default_factory=dict)
    """Names that a file with a fault seems to define; they say why an agent is missing, and take none away."""

    def fault(self, name: str) -> str:
        """Why a file of this agent is there and the agent is not; empty if that is not so."""
        problem = self.refused.get(name) or (None if name in self.agents else self.suspected.get(name))
        return f"The agent {name!r} cannot work, its file is broken: {problem}" if problem else ""

    def current(self, wanted: str = DEFAULT) -> "Agents":
        """These; live.py has some that follow their files."""
        return self


def load(folder: Path | None) -> Agents:
    """Read every ``*.yaml`` and ``*.yml`` of a folder, several agents per file; None gives the packaged agent alone.

    An agent with a value of the wrong type is left out, and nothing takes its place: another agent of that name, the
    packaged one too, might do what this one must not. A key that Loom does not know is kept in ``raw`` and told.
    """
    shipped = _file(Path(__file__).with_name("default.yaml"))
    problems = [*shipped.problems]
    agents: dict[str, Agent] = {}
    refused: dict[str, Problem] = {}
    suspected: dict[str, Problem] = {}
    unread: list[Path] = []
    if folder is not None and not folder.is_dir():
        problems.append(Problem("no such folder", file=str(folder)))
    problems += _passed_over(folder)
    for path in files_of(folder):
        found = _file(path)
        problems += found.problems
        refused |= found.refused
        suspected |= found.suspected
        unread += [path] if found.is_unread else []
        for agent in found.agents:
            problems += [_twice(agent, agents[agent.name])] if agent.name in agents else []
            agents.setdefault(agent.name, agent)
    there = {agent.name: agent for agent in shipped.agents} | agents
    kept = {name: agent for name, agent in there.items() if name not in refused}
    frozen, documents = MappingProxyType, _documents(there.values())
    told = (problem for problem in problems if Path(problem.file) not in documents)
    return Agents(frozen(kept), tuple(told), frozen(refused), frozenset(unread), frozen(suspected))


@dataclass(slots=True)
class _Found:
    """What one file holds."""

    agents: list[Agent] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    refused: dict[str, Problem] = field(default_factory=dict)
    suspected: dict[str, Problem] = field(default_factory=dict)
    is_unread: bool = False


def files_of(folder: Path | None) -> list[Path]:
    """The files of a folder that may define agents, in the order in which they are read."""
    if folder is None:
        return []
    return sorted(path for path in folder.glob("*") if path.suffix in _SUFFIXES and path.is_file())


def _documents(agents: Iterable[Agent]) -> frozenset[Path]:
    """OpenAPI documents of agents: YAML too, and it is no fault of theirs that they define no agent."""
    told = ((agent.file, agent.backend.openapi) for agent in agents if agent.backend is not None)
    return frozenset(Path(file).parent / openapi for file, openapi in told if openapi is not None)


def _passed_over(folder: Path | None) -> Iterator[Problem]:
    """Files that look like those of agents, and by their names are none."""
    for path in sorted(folder.glob("*")) if folder else ():
        is_alike = any(suffix.lower() in _SUFFIXES for suffix in path.suffixes)
        if is_alike and path.suffix not in _SUFFIXES and path.is_file():
            yield Problem("is not read", "agents' files end in .yaml or .yml", str(path), is_warning=True)


def _file(path: Path) -> _Found:
    found = _Found()
    try:
        documents = marked_documents(path)
    except Unreadable as error:
        return _unread(path, Problem(error.reason, file=str(path), line=error.args[1]))
    if not documents:
        found.problems.append(Problem("no agent in it", file=str(path), is_warning=True))
        found.suspected[path.stem] = found.problems[-1]
    for document in documents:
        try:
            agent, told = _agent(path, document)
        except WrongField as error:
            name = _name_in(document.content)
            line = line_near(document.lines(), error.field) or document.line
            reason = error.reason if error.field else str(error)
            problem = Problem(reason, file=str(path), line=line, agent=name or "", field=error.field)
            found.problems.append(problem)
            found.suspected.setdefault(name or path.stem, problem)
            if name is not None and _is_agent(document.content):
                found.refused[name] = problem
        else:
            found.agents.append(agent)
            found.problems += told
    return found


def _unread(path: Path, problem: Problem) -> _Found:
    """A file of which nothing is known but its text, if that much."""
    text = ""
    with contextlib.suppress(OSError), path.open("rb") as file:
        text = file.read(MAX_BYTES).decode("utf-8", "replace")
    is_default = path.stem == DEFAULT or _NAMES_DEFAULT.search(text) is not None
    seen = dict.fromkeys((path.stem, *_NAMED.findall(text)), problem)
    return _Found(problems=[problem], refused={DEFAULT: problem} if is_default else {}, suspected=seen, is_unread=True)


def _twice(agent: Agent, first: Agent) -> Problem:
    file, _, line = agent.source.rpartition(":")
    text = f"agent {agent.name} is already defined in {first.source}"
    return Problem(text, "rename one of them, or take it out", file, int(line))


def _name_in(content: Any) -> str | None:
    """The name that a document with a fault gives."""
    head = content.get("agent", content.get("metadata")) if isinstance(content, dict) else None
    name = head.get("name") if isinstance(head, dict) else None
    return name if isinstance(name, str) else None


def _is_agent(content: Any) -> bool:
    """True for a document that should define an agent, and not something else."""
    return isinstance(content, dict) and content.get("kind", "Agent") == "Agent"


def _agent(path: Path, document: Document) -> tuple[Agent, list[Problem]]:
    """Build one agent and tell which of its keys do nothing.

    Raises:
        WrongField: a value does not do.
    """
    root = Fields(document.content)
    if "agent" in root:
        meta = spec = root.under("agent")
    else:
        _check_kind(root)
        meta, spec = root.under("metadata"), root.under("spec")
    name = meta.text("name") or ""
    if not _NAME.fullmatch(name):
        raise meta.wrong("name", "a name of letters, digits, '.', '_' and '-', at most 128,", name)
    meta.get("labels")
    built, lines, source = _built(meta, spec, name), document.lines(), f"{path}:{document.line}"
    agent = replace(built, unknown_keys=root.unknown(), raw=document.content or {}, source=source, lines=lines)
    told = (*_without_effect(agent, root), *_repeated(agent, document))
    return agent, sorted(told, key=lambda problem: problem.line)


def _without_effect(agent: Agent, root: Fields) -> Iterator[Problem]:
    for path, meant in root.strays():
        advice = f"did you mean {meant}?" if meant else "it has no effect"
        yield agent.problem(path, "unknown key", advice, is_warning=True)
    for path in root.idle():
        yield agent.problem(path, "without effect yet", is_warning=True)


def _repeated(agent: Agent, document: Document) -> Iterator[Problem]:
    for key, line in document.repeated():
        text = f"{key} stands there twice, and this one counts"
        yield Problem(text, "take one of them out", agent.file, line, agent.name, is_warning=True)


def _check_kind(root: Fields) -> None:
    kind, version = root.text("kind"), root.text("apiVersion")
    if kind != "Agent":
        raise WrongField(f"Agent is needed, not {kind or 'nothing'}", "kind")
    if version != _API_VERSION:
        raise WrongField(f"{_API_VERSION} is needed, not {version or 'nothing'}", "apiVersion")


def _built(meta: Fields, spec: Fields, name: str) -> Agent:
    config, llm = spec.under("config"), spec.under("llm")
    patterns, skills = config.under("patterns"), config.under("skills")
    spec.keep("judge_llm", "observability")
    box = work.toolbox(spec)
    given: dict[str, Any] = {
        "version": meta.text("version"),
        "description": meta.text("description"),
        "system_prompt": spec.text("system_prompt"),
        "provider": llm.choice("provider", _PROVIDERS),
        "model": llm.text("model"),
        "max_tokens": llm.whole("max_tokens"),
        "max_context_tokens": llm.whole("max_context_tokens"),
        "reserved_output_tokens": llm.whole("reserved_output_tokens"),
        "stop_sequences": llm.texts("stop_sequences"),
        "tools": box.allowed,
        "custom": box.custom,
        "mcp_servers": box.servers,
        "allows_mcp": box.allows_mcp,
        "is_read_only": config.flag("read_only"),
        "approval": work.approval(config),
        "max_llm_calls": config.whole("max_turns"),
        "max_tool_calls": config.whole("max_tool_executions"),
        "timeout_s": config.number("timeout_seconds"),
        "patterns_enabled": patterns.flag("enabled"),
        "min_confidence": patterns.number("min_confidence", most=1.0),
        "max_patterns_per_turn": patterns.whole("max_patterns_per_turn", least=0),
        "reranks_patterns": patterns.flag("rerank"),
        "skills_enabled": skills.flag("enabled"),
        "max_skills_per_turn": skills.whole("max_skills_per_turn", least=0),
        "memory": memory.policy(spec.under("memory")),
        "compressor": _compressor(spec.under("compressor_llm")),
    }
    known = {key: value for key, value in given.items() if value is not None}
    return Agent(name=name, backend=work.backend(spec), **known)


def _compressor(llm: Fields) -> Compressor:
    compressor = Compressor(
        provider=llm.choice("provider", _PROVIDERS),
        model=llm.text("model"),
        max_context_tokens=llm.whole("max_context_tokens"),
    )
    llm.keep_rest()
    return compressor
