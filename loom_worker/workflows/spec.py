"""The pattern that a workflow's ``spec`` describes."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from referencing.exceptions import Unresolvable

from loom_worker.core.fields import MISSING, Fields, InvalidField, Place, present
from loom_worker.core.text import did_you_mean
from loom_worker.core.values.json import Json
from loom_worker.core.values.workflows import (
    MERGE_STRATEGIES,
    MOST_AGENTS,
    MOST_ITERATIONS,
    MOST_NESTED,
    MOST_RETRIES,
    MOST_ROUNDS,
    PATTERN_TYPES,
    VOTING_STRATEGIES,
    ApprovalGate,
    Conditional,
    Coordination,
    Debate,
    Iterative,
    OutputRetries,
    ParallelTasks,
    Pattern,
    PatternType,
    Pipeline,
    PipelineStage,
    Swarm,
    Task,
)
from loom_worker.judge.checks import response_format
from loom_worker.tools.arguments import check_references, pointer
from loom_worker.workflows.members import key_of
from loom_worker.workflows.placeholders import renamed

_ITS_OWN = {"previous_output": "output"}
"""In the feedback before a retry, the previous output is that of the previous attempt."""


def pattern_from(spec: Json) -> Pattern:
    """The pattern of a stored spec; InvalidField: it is not one that ``load`` would have accepted."""
    return pattern_of(Fields(spec, ("spec",)))


def pattern_of(fields: Fields, depth: int = 1) -> Pattern:
    """The pattern of a spec; InvalidField: a value that cannot be used.

    Args:
        depth: how many specs it stands in, itself included.
    """
    if depth > MOST_NESTED:
        raise InvalidField(fields.place, f"at most {MOST_NESTED} workflows may stand within each other")
    kind = _kind(fields)
    fields.keep("communication", "observability")
    agents = fields.get("agents")  # whoever reads the file reads them: load.py
    if agents is not None and not (isinstance(agents, list) and all(isinstance(each, dict) for each in agents)):
        raise fields.invalid("agents", "a list of mappings", agents)
    match kind:
        case "pipeline":
            return _pipeline(fields)
        case "fork-join" | "parallel":
            return _fan_out(fields, kind)
        case "conditional":
            return _conditional(fields, depth)
        case "iterative":
            return _iterative(fields)
        case "debate":
            return _debate(fields)
        case "swarm":
            return _swarm(fields)
        case "coordination":
            return _coordination(fields)


def _advised(place: Place, reason: str, name: str, known: Iterable[str]) -> InvalidField:
    """The error of a name that is not known, with the known one that resembles it."""
    advice = did_you_mean(name, known)
    return InvalidField(place, f"{reason}; {advice}" if advice else reason)


def _kind(fields: Fields) -> PatternType:
    given = str(fields.get("type")).replace("_", "-")
    if given in PATTERN_TYPES:
        return given
    if fields.choice("type", PATTERN_TYPES) is None and fields.get("entrypoint") is not None:
        return "coordination"
    raise InvalidField(fields.place_of("type"), MISSING)


def _pipeline(fields: Fields) -> Pipeline:
    initial = fields.required("initial_prompt")
    entries = _entries(fields, "stages")
    ids = _stage_ids(entries)
    stages = tuple(_stage(entry, own_id) for entry, own_id in zip(entries, ids, strict=True))
    return Pipeline(initial, stages, pass_full_history=bool(fields.flag("pass_full_history")))


def _stage_ids(entries: Sequence[Fields]) -> list[str]:
    """The id of each stage: as given, or the name of its agent, with a number where that is taken."""
    given = [(entry.text("id") or "").strip() for entry in entries]
    for n, own_id in enumerate(given):
        if own_id and own_id in given[:n]:
            raise InvalidField(entries[n].place_of("id"), f"another stage has the id {own_id!r}")
    taken, ids = set(given), []
    for entry, own_id in zip(entries, given, strict=True):
        name = own_id or next(each for each in _numbered(local(entry.required("agent_id"))) if each not in taken)
        taken.add(name)
        ids.append(name)
    return ids


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}-{n}" for n in range(2, 2 * MOST_AGENTS + 2))


def local(agent_id: str) -> str:
    """The name that an agent has in its file."""
    return agent_id.rpartition(":")[2]


def _stage(fields: Fields, own_id: str) -> PipelineStage:
    fields.keep("leveling")
    form = response_format(fields)
    return PipelineStage(
        agent_id=fields.required("agent_id"),
        prompt_template=fields.required("prompt_template"),
        id=own_id,
        validation_prompt=fields.optional("validation_prompt"),
        output_schema=_schema(fields, "output_schema") or (form and form["schema"]),
        response_format=form,
        retry=_retry(fields),
        approval=_approval(fields),
    )


def _schema(fields: Fields, key: str) -> Mapping[str, Any] | None:
    given = fields.get(key)
    if given is None:
        return None
    try:
        schema = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError) as error:
        raise InvalidField(fields.place_of(key), f"is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise fields.invalid(key, "a JSON Schema, which is a mapping,", given)
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
        check_references(schema)
    except SchemaError as error:
        raise InvalidField(fields.place_of(key), f"is no JSON Schema: {pointer(error)}: {error.message}") from error
    except Unresolvable as error:
        reason = f"the JSON Schema refers to {error.ref!r}, which is not in it"
        raise InvalidField(fields.place_of(key), reason) from error
    return schema


def _retry(fields: Fields) -> OutputRetries:
    policy = fields.under("retry_policy")
    policy.keep("session_mode", "cooldown_ms")
    feedback = policy.optional("feedback_template")
    return OutputRetries(
        **present(
            max_retries=policy.whole("max_retries", 0, MOST_RETRIES),
            include_valid_values=policy.flag("include_valid_values"),
            feedback=feedback and renamed(feedback, _ITS_OWN),
        )
    )


def _approval(fields: Fields) -> ApprovalGate | None:
    is_wanted = fields.get("approval")
    if is_wanted is None or isinstance(is_wanted, bool):
        return ApprovalGate() if is_wanted else None
    gate = fields.under("approval")
    gate.keep("request_type", "revise_target_stage_id")
    return ApprovalGate(
        **present(
            prompt=gate.optional("prompt"),
            timeout_s=gate.number("timeout_seconds"),
            on_timeout=gate.choice("on_timeout", ("reject", "approve")),
            max_revisions=gate.whole("max_revisions", 0),
        )
    )


def _fan_out(fields: Fields, kind: PatternType) -> ParallelTasks:
    if kind == "fork-join":
        prompt = fields.required("prompt")
        tasks = tuple(Task(agent_id, prompt) for agent_id in _agent_ids(fields))
    else:
        entries = _entries(fields, "tasks")
        for entry in entries:
            entry.keep("metadata")
        tasks = tuple(Task(entry.required("agent_id"), entry.required("prompt")) for entry in entries)
    merge = present(merge_strategy=fields.choice("merge_strategy", MERGE_STRATEGIES))
    merger, timeout_s = fields.optional("merge_agent_id"), fields.number("timeout_seconds")
    return ParallelTasks(kind, tasks, merge_agent_id=merger, timeout_s=timeout_s, **merge)


def _conditional(fields: Fields, depth: int) -> Conditional:
    agent_id, prompt = fields.required("condition_agent_id"), fields.required("condition_prompt")
    branches = fields.under("branches")
    names = branches.names()
    _check_count(fields, "branches", len(names))
    has_default = fields.get("default_branch") is not None
    return Conditional(
        condition_agent_id=agent_id,
        condition_prompt=prompt,
        branches={name: pattern_of(branches.under(name), depth + 1) for name in names},
        default_branch=pattern_of(fields.under("default_branch"), depth + 1) if has_default else None,
        retry=_retry(fields),
    )


def _iterative(fields: Fields) -> Iterative:
    if fields.get("pipeline") is None:
        raise InvalidField(fields.place_of("pipeline"), MISSING)
    inner, policy = fields.under("pipeline"), fields.under("restart_policy")
    inner.choice("type", ("pipeline",))
    pipeline = _pipeline(inner)
    is_enabled = policy.flag("enabled") is not False
    restartable = _stages_named(policy, "restartable_stages", pipeline)
    policy.keep_rest()
    fields.keep("restart_topic")
    most = fields.whole("max_iterations", most=MOST_ITERATIONS)
    triggers = _stages_named(fields, "restart_triggers", pipeline)
    return Iterative(
        pipeline,
        restart_triggers=triggers,
        restartable_stages=restartable,
        **present(max_iterations=most if is_enabled else 1),
    )


def _stages_named(fields: Fields, key: str, pipeline: Pipeline) -> frozenset[str]:
    """The ids of the stages that a list names, by their ids or by their agents."""
    found: set[str] = set()
    known = {name for stage in pipeline.stages for name in _names(stage)}
    for n, name in enumerate(fields.texts(key) or ()):
        if name not in known:
            raise _advised((*fields.place_of(key), n), f"there is no stage {name!r}", name, sorted(known))
        by_id = {stage.id for stage in pipeline.stages if stage.id == name}
        found |= by_id or {stage.id for stage in pipeline.stages if name in _names(stage)}
    return frozenset(found)


def _names(stage: PipelineStage) -> tuple[str, ...]:
    return stage.id, stage.agent_id, local(stage.agent_id)


def _debate(fields: Fields) -> Debate:
    return Debate(
        topic=fields.required("topic"),
        agent_ids=_agent_ids(fields),
        **present(
            rounds=fields.whole("rounds", most=MOST_ROUNDS),
            merge_strategy=fields.choice("merge_strategy", MERGE_STRATEGIES),
            moderator_agent_id=fields.optional("moderator_agent_id"),
        ),
    )


def _swarm(fields: Fields) -> Swarm:
    return Swarm(
        question=fields.required("question"),
        agent_ids=_agent_ids(fields),
        retry=_retry(fields),
        **present(
            strategy=fields.choice("strategy", VOTING_STRATEGIES),
            confidence_threshold=fields.number("confidence_threshold", most=1.0),
            shares_votes=fields.flag("share_votes"),
            judge_agent_id=fields.optional("judge_agent_id"),
        ),
    )


def _coordination(fields: Fields) -> Coordination:
    entrypoint = fields.required("entrypoint")
    prompt = fields.optional("prompt") or "{{input}}"
    if fields.get("agents") is None:
        return Coordination(entrypoint, prompt)
    agents: dict[str, str] = {}
    entries = Fields({"agents": fields.get("agents")}, fields.place)  # what is unknown in them is reported elsewhere
    for entry in _entries(entries, "agents"):
        name = entry.required(key_of({key: entry.get(key) for key in ("id", "name")}) or "name")
        if name in agents:
            raise InvalidField(entry.place, f"another agent has the name {name!r}")
        agents[name] = entry.optional("agent") or name
    if entrypoint not in agents:
        raise _advised(fields.place_of("entrypoint"), f"spec.agents has no {entrypoint!r}", entrypoint, agents)
    return Coordination(agents[entrypoint], prompt, tuple(agents.values()))


def _agent_ids(fields: Fields) -> tuple[str, ...]:
    ids = tuple(agent_id.strip() for agent_id in fields.texts("agent_ids") or ())
    _check_count(fields, "agent_ids", len(ids))
    if "" in ids:
        raise InvalidField((*fields.place_of("agent_ids"), ids.index("")), MISSING)
    return ids


def _entries(fields: Fields, key: str) -> tuple[Fields, ...]:
    found = fields.each(key)
    _check_count(fields, key, len(found))
    return found


def _check_count(fields: Fields, key: str, count: int) -> None:
    if fields.get(key) is None:
        raise InvalidField(fields.place_of(key), MISSING)
    if not 1 <= count <= MOST_AGENTS:
        raise InvalidField(fields.place_of(key), f"from 1 to {MOST_AGENTS} entries are needed, not {count}")
