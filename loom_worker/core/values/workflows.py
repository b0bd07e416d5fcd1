"""Workflows as their files define them: which agents are asked what, and how their answers are merged."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from loom_worker.core.values.agents import Agent
from loom_worker.core.values.json import Json
from loom_worker.core.values.problems import Problem, line_near
from loom_worker.core.values.schedules import Schedule

PatternType = Literal[
    "pipeline", "fork-join", "parallel", "conditional", "iterative", "debate", "swarm", "coordination"
]
PATTERN_TYPES: tuple[PatternType, ...] = get_args(PatternType)
MergeStrategy = Literal["consensus", "voting", "summary", "concatenate", "first", "best"]
MERGE_STRATEGIES: tuple[MergeStrategy, ...] = get_args(MergeStrategy)
WRITTEN_MERGES: frozenset[MergeStrategy] = frozenset({"consensus", "summary", "best"})
"""Merges that an agent writes or decides; the others are made of the answers alone."""
VotingStrategy = Literal["majority", "supermajority", "unanimous", "weighted"]
VOTING_STRATEGIES: tuple[VotingStrategy, ...] = get_args(VotingStrategy)
TimeoutAction = Literal["reject", "approve"]

MOST_RETRIES = 10
USUAL_ITERATIONS, MOST_ITERATIONS = 3, 100
MOST_ROUNDS = 20
MOST_AGENTS = 100
"""Stages, tasks, debaters or voters of one pattern."""
MOST_NESTED = 5
"""Patterns within each other."""
APPROVAL_S = 24 * 3600.0
"""For how long a person is waited for, unless the file says otherwise; as for the approval of a tool call."""
USUAL_REVISIONS = 3
USUAL_CONFIDENCE = 0.5


@dataclass(frozen=True, slots=True)
class OutputRetries:
    """How often a stage whose output is not what it must be is asked again."""

    max_retries: int = 0
    include_valid_values: bool = True
    """True: the agent is told which values would do."""
    feedback: str | None = None
    """What it is told: a template with ``{{error}}``, ``{{output}}``, ``{{attempt}}`` and others; None: ours."""


NO_RETRIES = OutputRetries()


@dataclass(frozen=True, slots=True)
class ApprovalGate:
    """A person looks at a stage's output before the run goes on."""

    prompt: str = "{{output}}"
    """A template of what the person is shown."""
    timeout_s: float = APPROVAL_S
    on_timeout: TimeoutAction = "reject"
    max_revisions: int = USUAL_REVISIONS
    """How often the person may have the stage done again."""


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """One stage of a pipeline."""

    agent_id: str
    prompt_template: str
    id: str = ""
    """As other stages name it; the agent's where the file gives none."""
    validation_prompt: str | None = None
    """A template with ``{{output}}``, which the stage's agent answers with yes or no."""
    output_schema: Mapping[str, Any] | None = None
    retry: OutputRetries = NO_RETRIES
    approval: ApprovalGate | None = None
    response_format: Json | None = None
    """The form that its agent is asked for; None: as the agent's file says."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages one after another."""

    initial_prompt: str
    stages: tuple[PipelineStage, ...]
    pass_full_history: bool = False
    """True: each stage gets the outputs of all before it, whether or not its template has a place for them."""
    type: PatternType = "pipeline"


@dataclass(frozen=True, slots=True)
class Task:
    """What one agent of a fan-out is asked."""

    agent_id: str
    prompt: str


@dataclass(frozen=True, slots=True)
class ParallelTasks:
    """Agents side by side: the same prompt for all of them (fork-join), or each its own (parallel)."""

    type: PatternType
    tasks: tuple[Task, ...]
    merge_strategy: MergeStrategy = "concatenate"
    merge_agent_id: str | None = None
    """Who writes the merge; None: the first of the agents."""
    timeout_s: float | None = None
    """From the beginning of the fan-out to its last answer."""


@dataclass(frozen=True, slots=True)
class Conditional:
    """An agent's answer chooses what is done."""

    condition_agent_id: str
    condition_prompt: str
    branches: Mapping[str, "Pattern"]
    default_branch: "Pattern | None" = None
    retry: OutputRetries = NO_RETRIES
    type: PatternType = "conditional"


@dataclass(frozen=True, slots=True)
class Iterative:
    """A pipeline that is done again for as long as one of its stages asks for it, or fails its validation."""

    pipeline: Pipeline
    max_iterations: int = USUAL_ITERATIONS
    restart_triggers: frozenset[str] = frozenset()
    """Ids of the stages that may ask for another iteration; empty: each of them."""
    restartable_stages: frozenset[str] = frozenset()
    """Ids of the stages from which an iteration may begin; empty: each of them."""
    type: PatternType = "iterative"


@dataclass(frozen=True, slots=True)
class Debate:
    """Agents answer each other, round by round."""

    topic: str
    agent_ids: tuple[str, ...]
    rounds: int = 1
    merge_strategy: MergeStrategy = "consensus"
    moderator_agent_id: str | None = None
    """Who writes the merge; None: the first of the agents."""
    type: PatternType = "debate"


@dataclass(frozen=True, slots=True)
class Swarm:
    """Agents vote."""

    question: str
    agent_ids: tuple[str, ...]
    strategy: VotingStrategy = "majority"
    confidence_threshold: float = USUAL_CONFIDENCE
    """Mean confidence (0-1) of those who voted for the winner, below which nothing is decided."""
    shares_votes: bool = False
    """True: one after another, each knowing the votes before its own."""
    judge_agent_id: str | None = None
    """Who decides where the vote does not."""
    retry: OutputRetries = NO_RETRIES
    type: PatternType = "swarm"


@dataclass(frozen=True, slots=True)
class Coordination:
    """One agent is asked, and talks to the others itself."""

    entrypoint: str
    prompt: str
    agent_ids: tuple[str, ...] = ()
    """Those it works with, itself among them."""
    type: PatternType = "coordination"


Pattern = Pipeline | ParallelTasks | Conditional | Iterative | Debate | Swarm | Coordination


def agent_ids(pattern: Pattern) -> Iterator[tuple[str, str]]:
    """All agents that a pattern names, each with its dotted path below ``spec``; repeats included."""
    match pattern:
        case Pipeline(stages=stages):
            yield from ((f"stages[{n}].agent_id", stage.agent_id) for n, stage in enumerate(stages))
        case ParallelTasks(type=kind, tasks=tasks, merge_agent_id=merger):
            for n, task in enumerate(tasks):
                yield (f"agent_ids[{n}]" if kind == "fork-join" else f"tasks[{n}].agent_id"), task.agent_id
            yield from (("merge_agent_id", merger),) if merger else ()
        case Conditional():
            yield "condition_agent_id", pattern.condition_agent_id
            for name, branch in pattern.branches.items():
                yield from ((f"branches.{name}.{path}", agent) for path, agent in agent_ids(branch))
            if pattern.default_branch is not None:
                yield from ((f"default_branch.{path}", agent) for path, agent in agent_ids(pattern.default_branch))
        case Iterative(pipeline=pipeline):
            yield from ((f"pipeline.{path}", agent) for path, agent in agent_ids(pipeline))
        case Debate():
            yield from ((f"agent_ids[{n}]", agent) for n, agent in enumerate(pattern.agent_ids))
            yield from (("moderator_agent_id", pattern.moderator_agent_id),) if pattern.moderator_agent_id else ()
        case Swarm():
            yield from ((f"agent_ids[{n}]", agent) for n, agent in enumerate(pattern.agent_ids))
            yield from (("judge_agent_id", pattern.judge_agent_id),) if pattern.judge_agent_id else ()
        case Coordination():
            yield "entrypoint", pattern.entrypoint
            yield from ((f"agents[{n}]", agent) for n, agent in enumerate(pattern.agent_ids))


@dataclass(frozen=True, slots=True)
class Workflow:
    """One workflow file's content, checked."""

    name: str
    pattern: Pattern
    spec: Json = field(default_factory=dict)
    """``spec`` as the file has it, in the form of today: what a run keeps, so that a later change does not touch it."""
    version: str = ""
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Values of its variables for runs that give none."""
    needed: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Variables that each run must give, by name: the line of the first place that uses it, 0 if it is not known."""
    scheduled: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    """Those of ``variables`` that the schedule alone gives a value; True: its texts use it."""
    agents: Mapping[str, Agent] = field(default_factory=lambda: MappingProxyType({}))
    """Agents that the file defines itself, by the name under which they work: ``workflow:agent``."""
    budget: Json | None = None
    """What one run may spend; a request can only set less."""
    deadline_s: float | None = None
    """For how long one run may take, from its acceptance."""
    schedule: Schedule | None = None
    """When it runs without a client; None: never."""
    unknown_keys: tuple[str, ...] = ()
    source: str = ""
    """``file:line`` of its document."""
    lines: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Line of each key, by its dotted path."""

    @property
    def file(self) -> str:
        """The path of its file; empty where it has none."""
        return self.source.rpartition(":")[0]

    def problem(self, path: str, text: str, fix: str = "", *, is_warning: bool = False) -> Problem:
        """Report a fault at a dotted path of the file, or of ``spec``."""
        begin = self.source.rpartition(":")[2]
        line = line_near(self.lines, path) or (int(begin) if begin.isdigit() else 0)
        return Problem(text, fix, self.file, line, field=path, is_warning=is_warning)

    def seen_by(self, workspace: str) -> "Workflow":
        """The workflow as a workspace has it: values that a schedule gives are for the schedule's own alone."""
        if self.schedule is None or self.schedule.workspace == workspace:
            return self
        own = {name: value for name, value in self.variables.items() if name not in self.scheduled}
        needed = {name: 0 for name, is_used in self.scheduled.items() if is_used}
        return replace(self, variables=own, needed={**self.needed, **needed})

    def as_json(self) -> Json:
        named = dict.fromkeys(agent for _, agent in agent_ids(self.pattern))
        return {
            "name": self.name,
            "object": "workflow",
            "version": self.version or None,
            "description": self.description or None,
            "labels": dict(self.labels),
            "pattern_type": self.pattern.type,
            "agents": list(named),
            "variables": [
                *({"name": name, "default": default} for name, default in self.variables.items()),
                *({"name": name, "default": None} for name in self.needed),
            ],
            "budget": self.budget,
            "deadline_s": self.deadline_s,
            "spec": self.spec,
        }
