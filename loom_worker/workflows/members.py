"""The agents that a workflow file lists: those it defines, and those to which it gives other names. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from loom_worker.core.fields import InvalidField
from loom_worker.core.values.json import Json

AGENT_KEYS = (
    *("system_prompt", "llm", "tools", "backend", "mcp_servers", "config", "memory"),
    *("judges", "judge_llm", "compressor_llm", "guardrails", "budget", "may_call", "response_format"),
)
"""An entry with one of these defines an agent."""
_ID_KEYS = ("agent_id", "merge_agent_id", "condition_agent_id", "moderator_agent_id", "judge_agent_id")

_OLDER_FORM = "belongs to an older form of the file, which is no longer read: write {} (docs/workflows.md)"
_OLDER_KEYS = {"pattern": "type", "config": "its settings beside type"}
_OLDER_STAGE_KEYS = {"hitl_gate": "approval", "output_policy": "output_schema and retry_policy in the stage"}
"""Keys of the older form, with what is written today."""


def key_of(entry: Mapping[str, Any]) -> str | None:
    """The key that holds the name by which the file knows an agent; None if there is none."""
    return next((key for key in ("id", "name") if entry.get(key) is not None), None)


def defines_agent(entry: Mapping[str, Any]) -> bool:
    """True if an entry says how its agent works; otherwise it names one of the installation."""
    return any(entry.get(key) is not None for key in AGENT_KEYS)


def listed(spec: Json, path: str = "spec") -> Iterator[tuple[str, Json]]:
    """Every entry of the lists of agents in a spec and the specs within it, with its path."""
    agents = spec.get("agents")
    for n, entry in enumerate(agents if isinstance(agents, list) else ()):
        if isinstance(entry, dict):
            yield f"{path}.agents[{n}]", entry
    for place, nested in _nested(spec):
        yield from listed(nested, f"{path}.{place}")


def refuse_older_form(document: Json, spec: Json) -> None:
    """Raise InvalidField at the first key of a form that earlier versions read: an approval must not get lost."""
    if "orchestration" in document:
        raise InvalidField(("orchestration",), _OLDER_FORM.format("its settings beside spec.type"))
    _refuse_older(spec, "spec")


def _refuse_older(spec: Json, path: str) -> None:
    stages = spec["stages"] if isinstance(spec.get("stages"), list) else []
    parts = [(spec, path, _OLDER_KEYS), *((s, f"{path}.stages[{n}]", _OLDER_STAGE_KEYS) for n, s in enumerate(stages))]
    for part, at, keys in parts:
        for key in keys:
            if isinstance(part, dict) and key in part and not (key == "pattern" and "type" in part):
                raise InvalidField((at, key), _OLDER_FORM.format(keys[key]))
    for place, nested in _nested(spec):
        _refuse_older(nested, f"{path}.{place}")
    if isinstance(spec.get("pipeline"), dict):
        _refuse_older(spec["pipeline"], f"{path}.pipeline")


def resolved(spec: Json, workflow: str) -> Json:
    """A spec that names every agent as the installation knows it: ``workflow:agent`` for those that it defines."""
    names = dict(_names(listed(spec), workflow))
    found: Json = _renamed(spec, names) if names else spec
    return found


def _names(entries: Iterable[tuple[str, Json]], workflow: str) -> Iterator[tuple[str, Any]]:
    for _, entry in entries:
        own = entry.get(key_of(entry) or "")
        if defines_agent(entry):
            yield str(own), f"{workflow}:{own}"
        elif entry.get("agent") is not None:
            yield str(own), entry["agent"]


def _nested(spec: Json) -> Iterator[tuple[str, Json]]:
    branches = spec.get("branches")
    for name, branch in branches.items() if isinstance(branches, dict) else ():
        if isinstance(branch, dict):
            yield f"branches.{name}", branch
    if isinstance(spec.get("default_branch"), dict):
        yield "default_branch", spec["default_branch"]


def _renamed(value: Any, names: Mapping[str, Any]) -> Any:
    """A spec, or a part of one, with other names for its agents, wherever they stand."""
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    return {key: _at(key, inside, names) for key, inside in value.items()} if isinstance(value, dict) else value


def _at(key: str, value: Any, names: Mapping[str, Any]) -> Any:
    if key in _ID_KEYS:
        return _name(value, names)
    if key in ("stages", "tasks", "pipeline", "default_branch"):
        return _renamed(value, names)
    if key == "branches" and isinstance(value, dict):
        return {name: _renamed(each, names) for name, each in value.items()}
    rename = {"agent_ids": _name, "agents": _entry}.get(key)
    return [rename(each, names) for each in value] if rename and isinstance(value, list) else value


def _entry(entry: Any, names: Mapping[str, Any]) -> Any:
    """An entry that defines an agent, with the name under which it works."""
    if not isinstance(entry, dict) or not defines_agent(entry):
        return entry
    return {**entry, "agent": names[str(entry.get(key_of(entry) or ""))]}


def _name(given: Any, names: Mapping[str, Any]) -> Any:
    return names.get(str(given), given)
