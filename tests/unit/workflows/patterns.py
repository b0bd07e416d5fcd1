"""Patterns of every type for properties, and agents whose answers follow from what they are asked."""

import hashlib
from collections.abc import Sequence

from hypothesis import strategies as st

from loom_worker.core.values.workflows import (
    MERGE_STRATEGIES,
    VOTING_STRATEGIES,
    ApprovalGate,
    Conditional,
    Coordination,
    Debate,
    Iterative,
    OutputRetries,
    ParallelTasks,
    Pattern,
    Pipeline,
    PipelineStage,
    Swarm,
    Task,
)

AGENTS = ("anna", "ben", "carl")
agents = st.sampled_from(AGENTS)
agent_lists = st.lists(agents, min_size=1, max_size=3).map(tuple)
retries = st.builds(OutputRetries, max_retries=st.integers(0, 2))
SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


@st.composite
def stages(draw: st.DrawFn, n: int) -> PipelineStage:
    return PipelineStage(
        draw(agents),
        draw(st.sampled_from(["Do {{.previous}}", "{{initial}} then {{ .history }}", "Alone."])),
        id=f"s{n}",
        validation_prompt=draw(st.sampled_from([None, "Is it right?", "Is {{output}} right?"])),
        output_schema=draw(st.sampled_from([None, None, SCHEMA])),
        retry=draw(retries),
        approval=draw(st.sampled_from([None, None, ApprovalGate(max_revisions=1)])),
    )


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    count = draw(st.integers(1, 3))
    return Pipeline("Begin {{topic}}", tuple(draw(stages(n)) for n in range(count)), draw(st.booleans()))


fan_outs = st.builds(
    ParallelTasks,
    type=st.sampled_from(["fork-join", "parallel"]),
    tasks=st.lists(st.builds(Task, agents, st.sampled_from(["One", "Two {{topic}}"])), min_size=1, max_size=3).map(
        tuple
    ),
    merge_strategy=st.sampled_from(MERGE_STRATEGIES),
    merge_agent_id=st.sampled_from([None, "carl"]),
)
debates = st.builds(
    Debate,
    topic=st.just("Why {{topic}}?"),
    agent_ids=agent_lists,
    rounds=st.integers(1, 3),
    merge_strategy=st.sampled_from(MERGE_STRATEGIES),
    moderator_agent_id=st.sampled_from([None, "carl"]),
)
swarms = st.builds(
    Swarm,
    question=st.just("Which {{topic}}?"),
    agent_ids=agent_lists,
    strategy=st.sampled_from(VOTING_STRATEGIES),
    confidence_threshold=st.sampled_from([0.0, 0.5, 0.9]),
    shares_votes=st.booleans(),
    judge_agent_id=st.sampled_from([None, "carl"]),
    retry=retries,
)
iteratives = st.builds(
    Iterative,
    pipeline=pipelines(),
    max_iterations=st.integers(1, 3),
    restart_triggers=st.sampled_from([frozenset(), frozenset({"s0"})]),
)
coordinations = st.builds(Coordination, entrypoint=agents, prompt=st.just("{{input}}"))
leaves: st.SearchStrategy[Pattern] = st.one_of(pipelines(), fan_outs, debates, swarms, iteratives, coordinations)
patterns: st.SearchStrategy[Pattern] = st.recursive(
    leaves,
    lambda inner: st.builds(
        Conditional,
        condition_agent_id=agents,
        condition_prompt=st.just("Is it yes or no?"),
        branches=st.fixed_dictionaries({"yes": inner, "no": inner}),
        default_branch=st.one_of(st.none(), inner),
        retry=retries,
    ),
    max_leaves=4,
)

SAYINGS = (
    *("yes", "no", "maybe so", '{"n": 1}', '{"n": 1, "restart": true}', "1", "2.", "RESTART s0: more", "Blue."),
    *("VOTE: blue\nCONFIDENCE: 0.9", "VOTE: red\nCONFIDENCE: 0.2", '{"vote": "Blue", "confidence": 60}'),
)
DECISIONS = ("approve", "reject", "revise")


def answer(agent: str, prompt: str, seed: int) -> str:
    """What an agent says to this prompt: always the same."""
    return _one_of(SAYINGS, f"{agent}|{prompt}|{seed}")


def decision(key: str, prompt: str, seed: int) -> str:
    """What a person says to this output: always the same."""
    return _one_of(DECISIONS, f"{key}|{prompt}|{seed}")


def _one_of(choices: Sequence[str], text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return choices[int.from_bytes(digest[:4]) % len(choices)]
