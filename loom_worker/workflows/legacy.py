"""Workflow files as they may be written, turned into the one form that is read and kept. Pure.

An older form names a ``pattern``, lists the agents with their prompts, and has settings in ``config`` and
``orchestration``; some keys have older names. Nothing is checked here: what cannot be turned is left as it is, for the
reader to refuse. A key that has no place in today's form stays where it was, and is reported as one without effect.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from loom_worker.core.values.json import Json
from loom_worker.core.values.problems import line_near
from loom_worker.workflows.members import defines_agent, key_of, listed, resolved

INPUT = "{{input}}"
"""What is asked where the older form gives no text: whatever the run is given."""
_TEXTS = {
    "pipeline": "initial_prompt",
    "fork-join": "prompt",
    "conditional": "condition_prompt",
    "debate": "topic",
    "swarm": "question",
}
_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "pipeline": {"pass_full_history": "pass_full_history"},
    "fork-join": {"merge_strategy": "merge_strategy", "timeout_seconds": "timeout_seconds"},
    "parallel": {"merge_strategy": "merge_strategy", "timeout_seconds": "timeout_seconds"},
    "debate": {"rounds": "rounds", "max_rounds": "rounds", "merge_strategy": "merge_strategy"},
    "swarm": {
        "strategy": "strategy",
        "voting_strategy": "strategy",
        "confidence_threshold": "confidence_threshold",
        "share_votes": "share_votes",
    },
}
"""Keys of ``config`` and ``orchestration``, by the type of the pattern: their names beside ``type``."""
_OLDER_DEFAULTS: Mapping[str, Json] = {"fork-join": {"merge_strategy": "summary"}, "debate": {"rounds": 3}}
_STAGE_KEYS = (
    *("prompt_template", "validation_prompt", "output_schema", "output_policy"),
    *("retry_policy", "approval", "hitl_gate"),
)
_LEADING = ("moderator", "judge", "classifier", "condition")
_LEADERS = {"debate": ("moderator", "moderator_agent_id"), "swarm": ("judge", "judge_agent_id")}
"""The role of the agent that does not take part but decides, and the key that names it."""


@dataclass(frozen=True, slots=True)
class Form:
    """A document in today's form."""

    root: Json
    moved: Mapping[str, str]
    """Paths in ``root`` by which something is found that stands elsewhere in the file: the path there."""
    notes: tuple[tuple[str, str], ...] = ()
    """Paths in the file, each with what its author should know."""

    def origin(self, path: str) -> str:
        """Where in the file a path of ``root`` comes from."""
        return _origin(self.moved, path)

    def lines(self, lines: Mapping[str, int]) -> dict[str, int]:
        """The lines of a file's paths, and those of the paths of ``root``."""
        sources: dict[str, list[str]] = {}
        for new, old in self.moved.items():
            sources.setdefault(old, []).append(new)
        found = dict(lines)
        for path, line in lines.items():
            for prefix in _prefixes(path):
                for new in sources.get(prefix, ()):
                    found.setdefault(new + path[len(prefix) :], line)
        return found | {new: line_near(lines, old) for new, old in self.moved.items()}


@dataclass(slots=True)
class _Moves:
    """What has been moved so far."""

    paths: dict[str, str] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def origin(self, path: str) -> str:
        """Where in the file a path comes from."""
        return _origin(self.paths, path)

    def note(self, new: str, old: str) -> None:
        """Remember that what is found by a new path stands at another one, which may have been moved itself."""
        origin = self.origin(old)
        if origin != new:
            self.paths[new] = origin

    def rename(self, fields: Json, path: str, old: str, new: str) -> None:
        """Give a key another name, unless that is taken."""
        if old in fields and new not in fields:
            fields[new] = fields.pop(old)
            self.note(f"{path}.{new}", f"{path}.{old}")

    def hoist(self, fields: Json, names: Mapping[str, str], path: str, source: tuple[Json, str]) -> None:
        """Take keys out of another mapping, unless they are here already; what is left there stays.

        Args:
            names: the keys there, each with its name here.
            source: the mapping, and its path.
        """
        inner, inner_path = source
        for old, new in names.items():
            if old in inner and new not in fields:
                fields[new] = inner.pop(old)
                self.note(f"{path}.{new}", f"{inner_path}.{old}")


def modern(content: Json, workflow: str, written: Any = None) -> Form:
    """A document of a workflow file in today's form.

    Args:
        workflow: its name.
        written: the same document with each value as the text that stands in the file: YAML takes a branch that is
            called ``yes`` for the value true.
    """
    root, moves = dict(content), _Moves()
    if not isinstance(root.get("spec"), dict):
        return Form(root, {})
    outside = dict(root.pop("orchestration")) if isinstance(root.get("orchestration"), dict) else {}
    texts = written.get("spec") if isinstance(written, dict) else None
    spec = _spec(root["spec"], "spec", moves, texts, outside)
    root |= {"orchestration": outside} if outside else {}
    _note_replaced(spec, moves)
    root["spec"] = resolved(spec, workflow)
    return Form(root, moves.paths, tuple(moves.notes))


def _note_replaced(spec: Json, moves: _Moves) -> None:
    for path, entry in listed(spec):
        if entry.get("agent") is not None and defines_agent(entry):
            text = "without effect: the entry has settings of its own, which define a new agent"
            moves.notes.append((moves.origin(f"{path}.agent"), text))


def _spec(given: Json, path: str, moves: _Moves, written: Any, outside: Json | None = None) -> Json:
    """A spec, and those within it, with today's keys; its agents have the names that the file gives them.

    Args:
        outside: settings beside ``spec``, of which those that are used are taken out; None: it stands in another one.
    """
    spec = dict(given)
    is_older, is_top = "pattern" in spec and "type" not in spec, outside is not None
    moves.rename(spec, path, "pattern", "type")
    if isinstance(spec.get("type"), str):
        spec["type"] = spec["type"].strip().replace("_", "-")
    if isinstance(spec.get("config"), dict):
        left = dict(spec.pop("config"))
        moves.hoist(spec, _names(spec, is_top=is_top), path, (left, f"{path}.config"))
        spec |= {"config": left} if left else {}
    moves.hoist(spec, _names(spec, is_top=is_top), path, (outside or {}, "orchestration"))
    _spread(spec, path, moves, is_older=is_older)
    _rename_in_stages(spec, path, moves)
    _turn_nested(spec, path, moves, written)
    if is_older:
        _add_defaults(spec, path, moves)
    return spec


def _kind(spec: Json) -> str:
    kind = spec.get("type")
    return kind if isinstance(kind, str) else "coordination" if "entrypoint" in spec else ""


def _names(spec: Json, *, is_top: bool) -> Mapping[str, str]:
    """The settings that a spec may have in ``config``, with their names beside ``type``."""
    names = dict(_SETTINGS.get(_kind(spec), {}))
    return names if not is_top or "timeout_seconds" in names else names | {"timeout_seconds": "deadline_seconds"}


def _add_defaults(spec: Json, path: str, moves: _Moves) -> None:
    """What the older form leaves open, as it was meant there."""
    key = _TEXTS.get(_kind(spec))
    if key is not None and spec.get(key) is None:
        spec[key] = INPUT
        moves.note(f"{path}.{key}", f"{path}.type")
    for name, value in _OLDER_DEFAULTS.get(_kind(spec), {}).items():
        spec.setdefault(name, value)


def _role(entry: Any) -> str:
    return str(entry.get("role") or "") if isinstance(entry, dict) else ""


def _spread(spec: Json, path: str, moves: _Moves, *, is_older: bool) -> None:
    """Give a spec that lists its agents under ``agents`` alone the lists that its type has."""
    agents = spec.get("agents")
    if not isinstance(agents, list) or not all(isinstance(entry, dict) for entry in agents):
        return
    spec["agents"] = agents = [dict(entry) for entry in agents]
    sources = [(entry, f"{path}.agents[{n}]") for n, entry in enumerate(agents)]
    kind = _kind(spec)
    if kind == "fork-join" and "prompt" not in spec and any("prompt_template" in entry for entry in agents):
        spec["type"] = kind = "parallel"
    match kind:
        case "pipeline" if "stages" not in spec:
            spec["stages"] = _parts(sources, path, "stages", moves)
        case "parallel" if "tasks" not in spec:
            spec["tasks"] = _parts(sources, path, "tasks", moves)
        case "fork-join" | "debate" | "swarm" if "agent_ids" not in spec:
            _spread_ids(spec, sources, path, moves)
        case "conditional" if "condition_agent_id" not in spec and agents:
            _spread_condition(spec, sources, path, moves, is_older=is_older)


def _spread_condition(spec: Json, sources: list[tuple[Json, str]], path: str, moves: _Moves, *, is_older: bool) -> None:
    deciding = next((each for each in sources if _role(each[0]) in ("classifier", "condition")), sources[0])
    if is_older and "branches" not in spec:
        spec["type"] = "pipeline"
        spec["stages"] = _parts([deciding], path, "stages", moves)
        text = "there are no branches, so the classifier's answer is the result"
        moves.notes.append((moves.origin(f"{path}.type"), text))
        return
    _name(spec, "condition_agent_id", path, moves, deciding)
    moves.hoist(spec, {"prompt_template": "condition_prompt"}, path, deciding)


def _parts(sources: list[tuple[Json, str]], path: str, key: str, moves: _Moves) -> list[Json]:
    """A stage or a task for each agent, with those keys of the agent's entry that belong there."""
    parts = []
    moves.note(f"{path}.{key}", f"{path}.agents")
    for n, (entry, there) in enumerate(sources):
        part: Json = {}
        here = f"{path}.{key}[{n}]"
        moves.note(here, there)
        _name(part, "agent_id", here, moves, (entry, there))
        if key == "stages":
            moves.hoist(part, {name: name for name in _STAGE_KEYS}, here, (entry, there))
            part.setdefault("prompt_template", "{{previous}}")
        else:
            moves.hoist(part, {"prompt_template": "prompt"}, here, (entry, there))
            part.setdefault("prompt", INPUT)
        parts.append(part)
    return parts


def _name(fields: Json, key: str, path: str, moves: _Moves, source: tuple[Json, str]) -> None:
    """Name the agent of an entry; an entry without a name is for the reader to refuse."""
    entry, place = source
    spelled = key_of(entry)
    if spelled is not None:
        fields[key] = entry[spelled]
    if _role(entry) in _LEADING:
        entry.pop("role")
    moves.note(f"{path}.{key}", f"{place}.{spelled or 'id'}")


def _spread_ids(spec: Json, sources: list[tuple[Json, str]], path: str, moves: _Moves) -> None:
    leading, leader_key = _LEADERS.get(_kind(spec), ("", ""))
    ids: list[Any] = []
    moves.note(f"{path}.agent_ids", f"{path}.agents")
    for entry, place in sources:
        if leading and _role(entry) == leading and leader_key not in spec:
            _name(spec, leader_key, path, moves, (entry, place))
            continue
        moves.note(f"{path}.agent_ids[{len(ids)}]", f"{place}.{key_of(entry) or 'id'}")
        if _role(entry) in ("debater", "voter"):
            entry.pop("role")
        ids.append(entry.get(key_of(entry) or ""))
    spec["agent_ids"] = ids


def _rename_in_stages(spec: Json, path: str, moves: _Moves) -> None:
    """Give the stages of a pipeline today's keys, those of the pipeline of an iterative spec too."""
    if isinstance(spec.get("pipeline"), dict):
        spec["pipeline"] = dict(spec["pipeline"])
        _rename_in_stages(spec["pipeline"], f"{path}.pipeline", moves)
    if isinstance(spec.get("stages"), list):
        stages = enumerate(spec["stages"])
        spec["stages"] = [_stage(each, f"{path}.stages[{n}]", moves) for n, each in stages]


def _stage(given: Any, path: str, moves: _Moves) -> Any:
    if not isinstance(given, dict):
        return given
    stage = dict(given)
    moves.rename(stage, path, "hitl_gate", "approval")
    if isinstance(stage.get("approval"), dict):
        gate = stage["approval"] = dict(stage["approval"])
        moves.rename(gate, f"{path}.approval", "prompt_template", "prompt")
        if gate.get("on_timeout") == "fail":
            gate["on_timeout"] = "reject"
        if gate.get("revise_target_stage_id") in (stage.get("id"), stage.get("agent_id")):
            gate.pop("revise_target_stage_id", None)
    if isinstance(stage.get("output_policy"), dict):
        left = dict(stage.pop("output_policy"))
        names = {"output_schema": "output_schema", "retry_policy": "retry_policy"}
        moves.hoist(stage, names, path, (left, f"{path}.output_policy"))
        stage |= {"output_policy": left} if left else {}
    return stage


def _turn_nested(spec: Json, path: str, moves: _Moves, written: Any) -> None:
    """Turn the specs of branches, which are known by what is written there."""
    spellings = written if isinstance(written, dict) else {}
    if isinstance(spec.get("branches"), dict):
        there = spellings.get("branches")
        names = there if isinstance(there, dict) else {}
        turned: Json = {}
        for key, branch in spec["branches"].items():
            name = _spelling(key, names)
            here = f"{path}.branches.{name}"
            moves.note(here, f"{path}.branches.{key}")
            turned[name] = _spec(branch, here, moves, names.get(name)) if isinstance(branch, dict) else branch
        spec["branches"] = turned
    if isinstance(spec.get("default_branch"), dict):
        here = f"{path}.default_branch"
        spec["default_branch"] = _spec(spec["default_branch"], here, moves, spellings.get("default_branch"))


def _spelling(key: Any, names: Mapping[str, Any]) -> str:
    """A key as it stands in the file: true may be ``yes`` or ``on`` there."""
    if not isinstance(key, bool):
        return str(key)
    words = ("yes", "on", "true") if key else ("no", "off", "false")
    return next((name for name in names if name.casefold() in words), words[-1])


def _prefixes(path: str) -> Iterator[str]:
    """A path and all that it is within, the longest first."""
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]


def _origin(moved: Mapping[str, str], path: str) -> str:
    for prefix in _prefixes(path):
        if prefix in moved:
            return moved[prefix] + path[len(prefix) :]
    return path
