"""Agents from YAML files (API: agent YAML); a bad file costs its own agent and no other."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loom_worker.agents import memory, work
from loom_worker.agents.fields import Fields
from loom_worker.errors import BadFile
from loom_worker.values.agents import Agent, Compressor
from loom_worker.yaml_files import MAX_BYTES, read_documents

DEFAULT = "default"
"""The agent that a session has unless it names one."""
_SUFFIXES = (".yaml", ".yml")
_PROVIDERS = ("anthropic", "bedrock", "ollama", "scripted")
_API_VERSION = "loom/v1"
_NAMES_DEFAULT = re.compile(r"\bname[\"']?\s*:\s*[\"']?default\b(?![.-])")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents there are; ``default`` is among them unless a file that should define it is refused."""

    agents: Mapping[str, Agent]
    """By name."""
    problems: tuple[str, ...]
    """What was left out or not understood, each as ``file:line: reason``."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Names that a file defines and that are not among ``agents`` for a fault of it, with that problem."""
    unread: frozenset[Path] = frozenset()
    """Files whose agents are not known, for they cannot be read."""

    def fault(self, name: str) -> str:
        """Why a file of this agent is there and the agent is not; empty if that is not so."""
        problem = self.refused.get(name)
        return f"The agent {name!r} cannot work, for its file is refused: {problem}" if problem else ""

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
    refused: dict[str, str] = {}
    unread: list[Path] = []
    if folder is not None and not folder.is_dir():
        problems.append(f"{folder}: no such folder")
    for path in files_of(folder):
        found = _file(path)
        problems += found.problems
        refused |= found.refused
        unread += [path] if found.is_unread else []
        for agent in found.agents:
            if agent.name in agents:
                problems.append(f"{agent.source}: agent {agent.name} is already defined in {agents[agent.name].source}")
            agents.setdefault(agent.name, agent)
    there = {agent.name: agent for agent in shipped.agents} | agents
    kept = {name: agent for name, agent in there.items() if name not in refused}
    return Agents(MappingProxyType(kept), tuple(problems), MappingProxyType(refused), frozenset(unread))


@dataclass(slots=True)
class _Found:
    """What one file holds."""

    agents: list[Agent] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    is_unread: bool = False


def files_of(folder: Path | None) -> list[Path]:
    """The files of a folder that may define agents, in the order in which they are read."""
    if folder is None:
        return []
    return sorted(path for path in folder.glob("*") if path.suffix in _SUFFIXES and path.is_file())


def _file(path: Path) -> _Found:
    found = _Found()
    try:
        documents = read_documents(path)
    except BadFile as error:
        refused = {DEFAULT: str(error)} if _may_be_default(path) else {}
        return _Found(problems=[str(error)], refused=refused, is_unread=True)
    for line, document in documents:
        where = f"{path}:{line}"
        try:
            agent, told = _agent(document)
        except (BadFile, ValueError) as error:  # ValueError: a hexadecimal number too long to be written in digits
            found.problems.append(f"{where}: {error}")
            if name := _name_in(document):
                found.refused[name] = found.problems[-1]
        else:
            found.agents.append(replace(agent, source=where))
            found.problems += [f"{where}: agent {agent.name}: {what}" for what in told]
    return found


def _name_in(document: Any) -> str | None:
    """The name of the agent that a document with a fault should define."""
    if not isinstance(document, dict) or document.get("kind", "Agent") != "Agent":
        return None
    head = document.get("agent", document.get("metadata"))
    name = head.get("name") if isinstance(head, dict) else None
    return name if isinstance(name, str) else None


def _may_be_default(path: Path) -> bool:
    """True for a file that cannot be read and seems to define the agent ``default``."""
    with contextlib.suppress(OSError):
        text = path.read_bytes()[:MAX_BYTES].decode("utf-8", "replace")
        return path.stem == DEFAULT or _NAMES_DEFAULT.search(text) is not None
    return path.stem == DEFAULT


def _agent(document: Any) -> tuple[Agent, list[str]]:
    """Build one agent and tell which of its keys do nothing; BadFile names the key, not yet the file."""
    root = Fields(document)
    if "agent" in root:
        meta = spec = root.under("agent")
    else:
        _check_kind(root)
        meta, spec = root.under("metadata"), root.under("spec")
    name = meta.text("name") or ""
    if not _NAME.fullmatch(name):
        raise BadFile(f"{meta.at('name')}: letters, digits, '.', '_' and '-' are needed, at most 128, not {name!r}")
    meta.get("labels")
    agent = replace(_built(meta, spec, name), unknown_keys=root.unknown(), raw=document or {})
    told = {"unknown keys": agent.unknown_keys, "without effect yet": root.idle()}
    return agent, [f"{what}: {', '.join(paths)}" for what, paths in told.items() if paths]


def _check_kind(root: Fields) -> None:
    kind, version = root.text("kind"), root.text("apiVersion")
    if kind != "Agent":
        raise BadFile(f"kind: Agent is needed, not {kind or 'nothing'}")
    if version != _API_VERSION:
        raise BadFile(f"apiVersion: {_API_VERSION} is needed, not {version or 'nothing'}")


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
