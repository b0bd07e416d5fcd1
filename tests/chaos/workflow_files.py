"""The workflows of the harness: one or more of each type, as their files have them.

What the model says to a stage stands in variables of the run (model_server.py), so that each run can go another way.
Every prompt has the run's id on its first line, which is also where the directives are.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Spec = Mapping[str, Any]

AGENTS = ("ada", "bob", "cay", "dan")
"""Files of their own, with all tools."""
VOTERS = list(AGENTS[:3])
JUDGE = AGENTS[3]
"""Merges, moderates and judges."""
CLERK = {
    "id": "clerk",
    "system_prompt": "You are @chain:clerk.",
    "backend": False,
    "tools": {"builtin": []},
    "config": {"patterns": {"enabled": False}},
    "memory": {"memory_compression": {"max_l1_messages": 100_000, "min_l1_messages": 100_000}},
}
"""An agent that only its workflow has."""
MERGES = ("concatenate", "first", "voting", "best", "summary", "consensus")


def _told(variable: str, *below: str) -> str:
    """A prompt: the directives in a variable, and what stands below them."""
    return "\n".join((f"{{{{run_id}}}} {{{{{variable}}}}}", *below))


def _stage(name: str, agent: str, *below: str, **more: Any) -> Spec:
    return {"id": name, "agent_id": agent, "prompt_template": _told(name, *(below or ("{{previous}}",))), **more}


def _again(variable: str, retries: int = 1) -> Spec:
    return {"max_retries": retries, "feedback_template": _told(variable, "{{output}}")}


_HAS_N = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
_CHAIN: Spec = {
    "type": "pipeline",
    "initial_prompt": "{{begin}}",
    "stages": [
        _stage("draft", "ada", output_schema=_HAS_N, retry_policy=_again("mend")),
        _stage("check", "bob", validation_prompt=_told("look", "{{output}}"), retry_policy=_again("redo")),
        _stage("sign", "clerk", approval={"prompt": "Is it fine?\n{{output}}", "max_revisions": 1}),
        _stage("last", "cay", "{{history}}"),
    ],
    "agents": [CLERK],
}
_TOLD_ALL: Spec = {
    "type": "pipeline",
    "initial_prompt": "{{begin}}",
    "pass_full_history": True,
    "stages": [_stage(name, agent, "Go on.") for name, agent in zip(("one", "two", "three"), VOTERS, strict=True)],
}
_PIPE: Spec = {
    "type": "pipeline",
    "initial_prompt": "{{begin}}\n{{previous}}",
    "stages": [_stage("one", "bob"), _stage("two", "cay")],
}
_FORK: Spec = {
    "type": "fork-join",
    "prompt": _told("ask", "{{previous}}"),
    "agent_ids": ["bob", "cay"],
    "merge_strategy": "first",
}
_CHOICE: Spec = {
    "type": "conditional",
    "condition_agent_id": "ada",
    "condition_prompt": _told("choose"),
    "branches": {"pipe": _PIPE, "fork": _FORK},
    "retry_policy": _again("anew"),
}
_TALK: Spec = {
    "type": "debate",
    "topic": _told("ask"),
    "agent_ids": VOTERS,
    "rounds": 2,
    "merge_strategy": "consensus",
    "moderator_agent_id": JUDGE,
}
_POLL: Spec = {"type": "swarm", "question": _told("ask"), "agent_ids": VOTERS, "retry_policy": _again("anew")}

SPECS: Mapping[str, Spec] = {
    "chain": _CHAIN,
    "told-all": _TOLD_ALL,
    **{
        f"fork-{merge}": {
            "type": "fork-join",
            "prompt": _told("ask"),
            "agent_ids": VOTERS,
            "merge_strategy": merge,
            "merge_agent_id": JUDGE,
        }
        for merge in MERGES
    },
    **{
        f"side-{merge}": {
            "type": "parallel",
            "tasks": [{"agent_id": agent, "prompt": _told(agent)} for agent in VOTERS],
            "merge_strategy": merge,
            "merge_agent_id": JUDGE,
        }
        for merge in ("concatenate", "best")
    },
    "choice": {**_CHOICE, "default_branch": {**_TALK, "rounds": 1, "topic": _told("ask", "{{previous}}")}},
    "strict": {**_CHOICE, "retry_policy": {"max_retries": 0}},
    "again": {
        "type": "iterative",
        "pipeline": {
            "type": "pipeline",
            "initial_prompt": "{{begin}}",
            "stages": [
                _stage("draft", "ada", "{{previous}}", "{{feedback}}"),
                _stage("work", "bob"),
                _stage("review", "cay"),
            ],
        },
        "max_iterations": 3,
        "restart_triggers": ["review"],
    },
    "talk": _TALK,
    "poll-majority": {**_POLL, "strategy": "majority"},
    "poll-weighted": {**_POLL, "strategy": "weighted", "judge_agent_id": JUDGE},
    "poll-judged": {**_POLL, "strategy": "unanimous", "judge_agent_id": JUDGE},
    "poll-shared": {**_POLL, "strategy": "majority", "share_votes": True},
    "desk": {
        "entrypoint": "lead",
        "agents": [{"name": "lead", "agent": "ada"}, {"name": "dan"}],
        "prompt": _told("ask"),
    },
}
"""The spec of each workflow, by its name."""


def write(folder: Path) -> None:
    """Write a file for each workflow."""
    folder.mkdir()
    for name, spec in SPECS.items():
        whole = {"apiVersion": "loom/v1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec}
        (folder / f"{name}.yaml").write_text(json.dumps(whole))  # YAML, too
