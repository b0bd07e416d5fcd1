"""Agents from YAML files (API: agent YAML); a bad file costs its own agent and no other."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loom_worker.agents import memory, work
from loom_worker.agents.fields import Fields
from loom_worker.errors import BadFile
from loom_worker.values.agents import Agent, Compressor
from loom_worker.yaml_files import read_documents

_SUFFIXES = (".yaml", ".yml")
_PROVIDERS = ("anthropic", "bedrock", "ollama", "scripted")
_API_VERSION = "loom/v1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents there are; ``default`` is always among them."""

    agents: Mapping[str, Agent]
    """By name."""
    problems: tuple[str, ...]
    """What was left out or not understood, each as ``file:line: reason``."""


def load(folder: Path | None) -> Agents:
    """Read every ``*.yaml`` and ``*.yml`` of a folder, several agents per file; None gives the packaged agent alone.

    An agent with a value of the wrong type is left out; a key that Loom does not know is kept in ``raw`` and told.
    """
    packaged, problems = _file(Path(__file__).with_name("default.yaml"))
    agents: dict[str, Agent] = {}
    if folder is not None and not folder.is_dir():
        problems.append(f"{folder}: no such folder")
    for path in _files(folder):
        found, told = _file(path)
        problems += told
        for agent in found:
            if agent.name in agents:
                problems.append(f"{agent.source}: agent {agent.name} is already defined in {agents[agent.name].source}")
            agents.setdefault(agent.name, agent)
    return Agents(MappingProxyType({agent.name: agent for agent in packaged} | agents), tuple(problems))


def _files(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    return sorted(path for path in folder.glob("*") if path.suffix in _SUFFIXES and path.is_file())


def _file(path: Path) -> tuple[list[Agent], list[str]]:
    agents: list[Agent] = []
    problems: list[str] = []
    try:
        documents = read_documents(path)
    except BadFile as error:
        return [], [str(error)]
    for line, document in documents:
        where = f"{path}:{line}"
        try:
            agent, told = _agent(document)
        except (BadFile, ValueError) as error:  # ValueError: a hexadecimal number too long to be written in digits
            problems.append(f"{where}: {error}")
        else:
            agents.append(replace(agent, source=where))
            problems += [f"{where}: agent {agent.name}: {what}" for what in told]
    return agents, problems


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
