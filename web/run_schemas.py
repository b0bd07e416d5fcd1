"""JSON Schemas of workflows and their runs: what clients send, and what they are answered."""

from typing import get_args

from loom_worker.core.values.runs import Run, RunDecision, RunStage
from web.request_schemas import DEADLINE, METADATA, PLAIN_BUDGET, USER, WEBHOOK, object_of
from web.schemas import (
    CUT,
    FLAG,
    FREE,
    NUMBER,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    answer,
    array,
    described,
    members,
    or_null,
    ref,
)

MOST_VARIABLES = 100
VARIABLE_CHARS = 200_000

NEW_RUN = object_of(
    {
        "variables": {
            "type": "object",
            "maxProperties": MOST_VARIABLES,
            "additionalProperties": {"type": ["string", "number", "boolean"], "maxLength": VARIABLE_CHARS},
            "description": "Values of the workflow's variables, by name; those with a default may be left out.",
        },
        "input": {
            **or_null({"type": "string", "maxLength": VARIABLE_CHARS}),
            "description": "The same as `variables.input`.",
        },
        "webhook": WEBHOOK,
        "budget": {**or_null(PLAIN_BUDGET), "description": "What all stages may spend together."},
        "deadline_s": DEADLINE,
        "metadata": METADATA,
        "user": {**or_null(USER), "description": "For whom the run is: its sessions are this user's."},
    },
    description="A run of a workflow; every member is optional, unless the workflow needs variables.",
)
CANCEL_RUN = object_of(
    {"action": {"type": "string", "enum": ["interrupt"], "default": "interrupt"}},
    description="An empty object or no body means `interrupt`: what was said stays.",
)
RUN_DECISION = object_of(
    {
        "decision": {
            "type": "string",
            "enum": list(get_args(RunDecision)),
            "description": "approve: the run goes on. reject: it ends. revise: the stage is done again, with `reason`.",
        },
        "reason": or_null({"type": "string", "maxLength": 4000}),
    },
    required=("decision",),
    description="What a person says to the output of a stage.",
)

_STAGE = answer(
    members(
        RunStage,
        "id name role agent_id session_id turn_id reused status reason output_text output_ref error usage duration_ms "
        "created_at completed_at",
        id=described(TEXT, "Its place in the workflow, such as `stages.0.retry.1`; unique in the run."),
        name=described(or_null(TEXT), "Of a pipeline's stage: its `id` in the file."),
        reused=described(FLAG, "A retry took it over from the earlier run."),
        duration_ms=or_null(WHOLE),
        output_ref=described(or_null(TEXT), "Of a long output: other stages read it as GET /v1/blobs/{output_ref}."),
        output_text=described(or_null(TEXT), "What came of it; of a long one only a part in lists and events."),
    ),
    description="A question to an agent, which is a turn, or to a person.",
    also={
        "prompt": described(or_null(TEXT), "Of an approval: what the person is shown."),
        "decision": or_null(TEXT),
        "comment": or_null(TEXT),
        "approve_by": or_null(TIME),
    },
)
_RESULT = answer(
    {
        "agent_id": TEXT,
        "stage": TEXT,
        "output_text": or_null(TEXT),
        "cost_usd": or_null(NUMBER),
        "duration_ms": or_null(WHOLE),
    },
    description="What an agent answered.",
)
_RUN = answer(
    members(
        Run,
        "id object workflow workflow_version pattern_type status reason stages agent_results merged_output usage cost "
        "duration_ms variables budget metadata error retry_of cancel trace_id user created_at completed_at",
        object={"const": "run"},
        stages=array(ref("RunStage")),
        agent_results=array(_RESULT),
        merged_output=described(or_null(TEXT), "The result; of a run that is not completed, what it has to show."),
        usage=ref("Usage"),
        cost=answer(
            {"usd": or_null(NUMBER), "by_agent": FREE}, description="Null where the price of a model is not known."
        ),
        duration_ms=or_null(WHOLE),
        trace_id=or_null(TEXT),
    ),
    description="A run of a workflow. Final statuses: completed, failed, cancelled, incomplete.",
    also=CUT,
)
_WORKFLOW = answer(
    {
        "name": TEXT,
        "object": {"const": "workflow"},
        "version": or_null(TEXT),
        "description": or_null(TEXT),
        "labels": FREE,
        "pattern_type": TEXT,
        "agents": array(TEXT),
        "variables": array(
            answer(
                {"name": TEXT, "default": described(or_null(TEXT), "null: each run must give it.")},
                description="A variable.",
            )
        ),
        "budget": or_null(FREE),
        "deadline_s": or_null(NUMBER),
        "spec": described(FREE, "As in the file, in the form of today."),
    },
    description="A workflow.",
)
_WORKFLOW_LIST = answer(
    {
        "object": {"const": "list"},
        "data": array(ref("Workflow")),
        "has_more": FLAG,
        "next": or_null(TEXT),
        "errors": described(array(TEXT), "What is wrong with the files of workflows, with file and line."),
    },
    description="All workflows.",
)
RUN_ANSWERS: dict[str, Schema] = {
    "Run": _RUN,
    "RunStage": _STAGE,
    "Workflow": _WORKFLOW,
    "WorkflowList": _WORKFLOW_LIST,
}
RUN_REQUESTS: dict[str, Schema] = {"NewRun": NEW_RUN, "CancelRun": CANCEL_RUN, "RunDecision": RUN_DECISION}
