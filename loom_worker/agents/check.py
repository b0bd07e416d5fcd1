"""What of an agent cannot work with the tools, models and agents at hand, each with its line. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loom_worker.agents.load import Agents
from loom_worker.core.settings_tree import Settings
from loom_worker.core.text import closest, did_you_mean
from loom_worker.core.values.agents import Agent, ModelChoice
from loom_worker.core.values.problems import Problem

KEY_FIX = "set ANTHROPIC_API_KEY or OPENAI_API_KEY, or put its provider before it, as in groq/NAME"
_PLACEHOLDER = re.compile(r"\$\{\w*\}|\{\{.*?\}\}")
_MISSPELT = 0.8
"""Likeness (0-1) from which on a name is one of ours, misspelt: exec_sql and execute_sql have 0.84."""
_FILLED_NOWHERE = ("backend", "llm", "compressor_llm", "judge_llm", "mcp_servers")


@dataclass(frozen=True, slots=True)
class Inventory:
    """The tools that an agent could have, as far as they are known."""

    tools: Mapping[str, bool]
    """By name: True for one that only reads."""
    unread: tuple[str, ...] = ()
    """Prefixes of the names of tools whose source could not be read. An empty text stands for all names."""


@dataclass(frozen=True, slots=True)
class Providers:
    """What the process knows of the providers of models."""

    settings: Settings
    """With the keys."""
    has_aws: bool
    """True: the packages that Bedrock needs are installed."""


def tools(agent: Agent, inventory: Inventory) -> Iterator[Problem]:
    """Report names in the file's lists that no tool has, and servers whose tools no list names."""
    names = [(path, name) for path, name in listed(agent) if name not in agent.custom]
    # A misspelt name in the list of approvals would ask nobody.
    approved = [
        (agent.at(f"config.approval.tools[{n}]"), name) for n, name in enumerate(agent.approval.tools) if name != "*"
    ]
    for path, name in (*names, *approved):
        if name not in inventory.tools and not name.startswith(inventory.unread):
            # A name that resembles none of ours is one of another system, and gives no right here.
            is_ours = bool(closest(name, inventory.tools, least=_MISSPELT))
            is_warning = not is_ours and (path, name) in names
            advice = _advice(agent, name, inventory.tools)
            yield agent.problem(path, f"there is no tool {name!r}", advice, is_warning=is_warning)
    for path, name in names:
        if agent.is_read_only and not inventory.tools.get(name, True):
            text = f"the tool {name!r} changes something, and config.read_only leaves it out"
            yield agent.problem(path, text, is_warning=True)
    yield from _servers(agent)


def models(agent: Agent, providers: Providers) -> Iterator[Problem]:
    """Report a provider without a key or its packages, and a model that another provider has."""
    own, usual = agent.llm, providers.settings.llm.usual
    provider, is_usual = agent.answering(usual).provider, own.named_provider is None
    if is_usual and provider == "bedrock" and not providers.has_aws:
        yield Problem("the provider bedrock needs AWS' packages", "pip install boto3", field="LOOM_PROVIDER")
    if is_usual and provider == "scripted" and not (own.model or provider).startswith(provider):
        text = f"{own.model!r} is named without a key, so the demo's script answers"
        is_meant = providers.settings.llm.is_chosen
        yield agent.problem(agent.at("llm.model"), text, KEY_FIX, is_warning=is_meant)
    for member, block in _named(agent):
        above = usual.provider if block is own else provider
        if block.provider not in (None, "scripted", above) and block.model is None:
            whose = f"{usual.model!r} (LOOM_MODEL)" if block is own else "the agent's own"
            text = f"no model is named, and {whose} is one of the provider {above}"
            fix = f"add the model, as {agent.at(f'{member}.model')}"
            yield agent.problem(agent.at(f"{member}.provider"), text, fix)
        yield from _access(agent, member, block, providers)
    if agent.has_llm_judges and agent.beside(agent.judge_model, usual).provider == "scripted":
        text = "the demo model cannot judge, so its LLM judges give no verdict"
        yield agent.problem(agent.at("judges"), text, f"name a model, as {agent.at('judge_llm')}", is_warning=True)


def called(agent: Agent, agents: Agents, *, others: Collection[str] = ()) -> Iterator[Problem]:
    """Report agents that it may call and that do not exist, or whose file is broken, and itself.

    Args:
        agents: those of agents' files.
        others: names of those that workflows define.
    """
    known = {*agents.agents, *others} - {agent.name}
    for n, name in enumerate(agent.may_call):
        path = agent.at(f"may_call[{n}]")
        if name == agent.name:
            yield agent.problem(path, "an agent cannot call itself", "take it out")
        elif name not in known:
            fault = agents.fault(name)
            fix = did_you_mean(name, known) or "take it out, or add its file to LOOM_AGENTS_DIR"
            yield agent.problem(path, fault or f"there is no agent {name!r}", "" if fault else fix)


def placeholders(agent: Agent) -> Iterator[Problem]:
    """Report variables, which another system would have filled in."""
    for member in _FILLED_NOWHERE:
        for path, text in _texts(_spec(agent).get(member), agent.at(member)):
            if found := _PLACEHOLDER.search(text):
                fix = "write the value itself; a secret is {secret: NAME}, its value LOOM_SECRET_NAME"
                yield agent.problem(path, f"{found[0]} stays as it is: no variables are filled in here", fix)


def listed(agent: Agent) -> Iterator[tuple[str, str]]:
    """The entries of the lists of tools, each with its path: names of tools, and of files or modules with tools."""
    tools = _spec(agent).get("tools")
    lists = {"tools": tools} if isinstance(tools, list) else {}
    if isinstance(tools, dict):
        lists = {f"tools.{kind}": tools.get(kind) or [] for kind in ("builtin", "custom")}
    for member, names in lists.items():
        for n, name in enumerate(names):
            yield agent.at(f"{member}[{n}]"), name


def remote(agent: Agent, secrets: Mapping[str, str]) -> Iterator[Problem]:
    """Report an agent elsewhere whose secret is not set, or would go out unencrypted."""
    if agent.remote is None or agent.remote.auth is None:
        return
    name = agent.remote.auth.secret
    if name not in secrets:
        fix = f"set LOOM_SECRET_{name} in the environment of all workers"
        yield agent.problem(agent.at("a2a.auth.secret"), f"LOOM_SECRET_{name} is not set", fix)
    if agent.remote.url.startswith("http:") and not agent.remote.allow_private:
        yield agent.problem(agent.at("a2a.url"), "a secret does not go out unencrypted", "use https")


def _named(agent: Agent) -> Iterator[tuple[str, ModelChoice]]:
    """The models that its file names, each with its member there."""
    yield "llm", agent.llm
    yield from ((f"llm.fallbacks[{n}]", each) for n, each in enumerate(agent.llm.fallbacks))
    summaries = "sessions.memory.compaction.summary_model"
    yield summaries if agent.at(summaries) in agent.lines else "compressor_llm", agent.compressor
    yield "judge_llm", agent.judge_model
    for stage, name in agent.guardrails.models.items():
        n = next(n for n, rule in enumerate(_spec(agent)["guardrails"][stage]) if rule.get("model"))
        yield f"guardrails.{stage}[{n}].model", ModelChoice(model=name)


def _access(agent: Agent, member: str, block: ModelChoice, providers: Providers) -> Iterator[Problem]:
    """Report a key, or packages, that a model's provider needs and that are not there."""
    settings, provider = providers.settings, block.named_provider
    chosen = agent.beside(block, settings.llm.usual) if provider else block
    path = agent.at(f"{member}.{'provider' if block.provider else 'model'}")
    path = path if path in agent.lines else agent.at(member)
    if block.secret and block.secret not in settings.secrets:
        fix = f"set LOOM_SECRET_{block.secret} in the environment of all workers"
        yield agent.problem(agent.at(f"{member}.api_key"), f"LOOM_SECRET_{block.secret} is not set", fix)
    elif provider and not (chosen.secret or chosen.base_url) and (lacks := settings.lacks(provider)):
        fix = f"set {lacks}, or choose another provider"
        yield agent.problem(path, f"the provider {provider} has no key", fix)
    if provider == "bedrock" and not providers.has_aws:
        yield agent.problem(path, "the provider bedrock needs AWS' packages", "pip install boto3")


def _spec(agent: Agent) -> Mapping[str, Any]:
    """The keys of the agent, wherever they stand in its file."""
    spec = agent.raw.get("agent", agent.raw.get("spec"))
    return spec if isinstance(spec, dict) else {}


def _advice(agent: Agent, name: str, known: Mapping[str, bool]) -> str:
    server, mark, _ = name.partition("__")
    if name.endswith("*"):
        return "there are no patterns of names; leave the list out for all tools"
    if advice := did_you_mean(name, known):
        return advice
    if mark and server not in {each.name for each in agent.mcp_servers}:
        return f"mcp_servers has no {server!r}"
    return "take it out, or name the file or package that has it (docs/tools.md)"


def _servers(agent: Agent) -> Iterator[Problem]:
    prefix = f"{agent.at('mcp_servers')}."
    configured = [path.removeprefix(prefix) for path in agent.lines if path.startswith(prefix)]
    chosen = {server.name: server.tools for server in agent.mcp_servers}
    for name in (name for name in configured if "." not in name):
        if agent.allows_mcp:
            is_named, fix = chosen.get(name, ()) != (), f"add {{server: {name}}} to {agent.at('tools.mcp')}"
        else:
            is_named = agent.tools is None or any(each.startswith(f"{name}__") for each in agent.tools)
            fix = f"name them in {agent.at('tools')}, as {name}__<tool>"
        if not is_named:
            yield agent.problem(prefix + name, f"no list names a tool of the MCP server {name!r}", fix)


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, f"{path}.{key}")
    elif isinstance(value, list):
        for n, each in enumerate(value):
            yield from _texts(each, f"{path}[{n}]")
