"""Workflows and their runs: start one, look at it, wait for its end, decide, cancel, go on from where it failed."""

import json
import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from flask import Response
from pydantic import Field

from loom_worker.core.errors import Flaw
from loom_worker.core.values.json import Json
from loom_worker.core.values.runs import NewRun, Run, RunDecision, RunStage, RunStatus
from web.answers import json_answer, known_id, listed, page_answer
from web.bodies import Body, Deadline, EmptyBody, Metadata, User, WebhookMember, request_fields
from web.caller import caller
from web.check import Given, any_of
from web.events import EventStreams
from web.long_polls import EndAnswer, LongPolls
from web.operation import IDEMPOTENT, NO_CONTENT, Operation, Views
from web.problems import RETRY_S
from web.query import PageQuery, Text
from web.schemas import CUT, USAGE, array, list_of, record
from web.turns import EVENT, PLAIN_BUDGET, TRACE_SPAN, ResumeQuery, WaitQuery

MOST_VARIABLES = 100
VARIABLE_CHARS = 200_000


def _spelled(value: str | float | bool) -> str:
    """A variable's value as it stands in a prompt: numbers and truth values as JSON spells them."""
    return value if isinstance(value, str) else json.dumps(value)


_VARIABLE = Given(any_of(string=Annotated[str, Field(max_length=VARIABLE_CHARS)], number=float, boolean=bool), _spelled)


class NewRunBody(Body):
    """A run of a workflow; every member is optional, unless the workflow needs variables."""

    variables: Annotated[dict[str, Annotated[str, _VARIABLE]], Field(max_length=MOST_VARIABLES)] = Field(
        default_factory=dict,
        description="Values of the workflow's variables, by name; those with a default may be left out.",
    )
    input: str | None = Field(None, max_length=VARIABLE_CHARS, description="The same as `variables.input`.")
    webhook: WebhookMember = None
    budget: Annotated[Any, PLAIN_BUDGET] = Field(None, description="What all stages may spend together.")
    deadline_s: Deadline = None
    metadata: Metadata = Field(default_factory=dict)
    user: User | None = Field(None, description="For whom the run is: its sessions are this user's.")

    @classmethod
    def further_flaws(cls, given: Json) -> Iterator[Flaw]:
        """The input has two places, but one value."""
        variables = given.get("variables")
        if isinstance(variables, dict) and "input" in variables and given.get("input") is not None:
            yield Flaw("/input", "is given twice: here, and in /variables/input")

    def value(self, workflow: str) -> NewRun:
        return NewRun(
            variables=self.variables | ({} if self.input is None else {"input": self.input}),
            webhook=self.webhook,
            budget=self.budget,
            deadline_s=self.deadline_s,
            metadata=self.metadata,
            user=self.user,
            **request_fields(f"/v1/workflows/{workflow}/runs", self.given),
        )


class CancelRunBody(Body):
    """An empty object or no body means `interrupt`: what was said stays."""

    is_optional = True
    action: Literal["interrupt"] = "interrupt"


class RunDecisionBody(Body):
    """What a person says to the output of a stage."""

    decision: RunDecision = Field(
        description="approve: the run goes on. reject: it ends. revise: the stage is done again, with `reason`."
    )
    reason: str | None = Field(None, max_length=4000)

    @classmethod
    def further_flaws(cls, given: Json) -> Iterator[Flaw]:
        """Who wants a change says which."""
        if given.get("decision") == "revise" and not given.get("reason"):
            yield Flaw("/reason", "must say what is to be changed")


class _RunQuery(PageQuery):
    workflow: Text | None = Field(None, description="Of this workflow only.")
    status: RunStatus | None = None


RUN_STAGE = record(
    "RunStage",
    "A question to an agent, which is a turn, or to a person.",
    "id name role agent_id session_id turn_id reused status reason output_text output_ref error usage "
    "duration_ms:whole? created_at completed_at",
    RunStage,
    also={
        "prompt": "text? Of an approval: what the person is shown.",
        "decision": "text?",
        "comment": "text?",
        "approve_by": "time?",
    },
    id="text Its place in the workflow, such as `stages.0.retry.1`; unique in the run.",
    name="text? Of a pipeline's stage: its `id` in the file.",
    reused="flag A retry took it over from the earlier run.",
    output_ref="text? Of a long output: other stages read it as GET /v1/blobs/{output_ref}.",
    output_text="text? What came of it; of a long one only a part in lists and events.",
)
_RESULT = record(
    "", "What an agent answered.", "agent_id:text stage:text output_text:text? cost_usd:number? duration_ms:whole?"
)
RUN = record(
    "Run",
    "A run of a workflow. Final statuses: completed, failed, cancelled, incomplete.",
    "id object=run workflow workflow_version pattern_type status reason stages agent_results merged_output usage cost "
    "duration_ms:whole? variables budget metadata error retry_of cancel trace_id:text? user created_at completed_at",
    Run,
    also=CUT,
    stages=array(RUN_STAGE),
    agent_results=array(_RESULT),
    merged_output="text? The result; of a run that is not completed, what it has to show.",
    usage=USAGE,
    cost=record("", "Null where the price of a model is not known.", "usd:number? by_agent:free"),
)
_VARIABLES = record("", "A variable.", "name:text", default="text? null: each run must give it.")
WORKFLOW = record(
    "Workflow",
    "A workflow.",
    "name:text object=workflow version:text? description:text? labels:free pattern_type:text agents:text[] "
    "budget:free? deadline_s:number?",
    variables=array(_VARIABLES),
    spec="free As in the file, in the form of today.",
)
WORKFLOW_LIST = record(
    "WorkflowList",
    "All workflows.",
    errors="text[] What is wrong with the files of workflows, with file and line.",
    **list_of(WORKFLOW).schema["properties"],
)
ACCEPTED = {202: RUN, 200: RUN}


class RunViews(Views, tag="workflows"):
    """The views of workflows and runs."""

    @Operation("GET /v1/workflows", WORKFLOW_LIST)
    def workflows(self, asked: PageQuery) -> Response:
        """List the workflows, and what of their files is in error."""
        seen = (each.seen_by(caller().workspace).as_json() for each in self.service.runs.workflows())
        errors = [str(problem) for problem in self.service.runs.problems()]
        return json_answer({**listed(seen, "name", asked), "errors": errors})

    @Operation("GET /v1/workflows/{name}", WORKFLOW, problems=(422,))
    def workflow(self, name: str) -> Response:
        """Look at a workflow."""
        return json_answer(self.service.runs.workflow(name, caller().workspace).as_json())

    @Operation("POST /v1/workflows/{name}/runs", ACCEPTED, scope="chat", headers=IDEMPOTENT, begins_turn=True)
    def start(self, name: str, body: NewRunBody) -> Response:
        """Start a run of a workflow."""
        new = body.value(name)
        if new.webhook is not None:
            self.service.check_webhook(new.webhook)
        asked_s = time.monotonic()
        run, is_replay = self.service.runs.start(caller().tenant, name, new)
        return self._accepted(run, is_replay=is_replay, asked_s=asked_s)

    @Operation("GET /v1/runs", list_of(RUN))
    def list(self, asked: _RunQuery) -> Response:
        """List runs, the newest first."""
        page = self.service.runs.runs(
            caller().tenant, workflow=asked.workflow, status=asked.status, limit=asked.limit, after=asked.after
        )
        return page_answer(page)

    @Operation("GET /v1/runs/{run_id}", RUN)
    def get(self, run_id: str, asked: WaitQuery) -> Response:
        """Look at a run, or wait for its end."""
        return self._polls.of(known_id(run_id, "run"), EndAnswer(min(asked.wait, self.max_wait_s)))

    @Operation("DELETE /v1/runs/{run_id}", NO_CONTENT, scope="chat")
    def delete(self, run_id: str) -> Response:
        """Delete a run and the sessions of its stages."""
        self.service.runs.delete(caller().tenant, known_id(run_id, "run"), by=caller().holder.actor)
        return Response(status=204)

    @Operation("GET /v1/runs/{run_id}/events", EVENT, headers=("Last-Event-ID",), media_type="text/event-stream")
    def stream(self, run_id: str, asked: ResumeQuery) -> Response:
        """Stream a run's events, while it goes on and after."""
        streams = EventStreams(self.service.runs.waiter, self.service.keys, self.limiter)
        return streams.of(known_id(run_id, "run"), asked.starting_after)

    @Operation("GET /v1/runs/{run_id}/trace", list_of(TRACE_SPAN))
    def trace(self, run_id: str, page: PageQuery) -> Response:
        """List the spans of a run and of its turns, while it goes on and after."""
        spans = self.service.runs.trace(caller().tenant, known_id(run_id, "run"))
        return json_answer(listed((span.as_json() for span in spans), "span_id", page))

    @Operation("POST /v1/runs/{run_id}/cancel", {202: RUN}, scope="chat")
    def cancel(self, run_id: str, _how: CancelRunBody) -> Response:
        """Ask a run to end, with all its turns; one that has ended is answered as it is."""
        run = self.service.runs.cancel(caller().tenant, known_id(run_id, "run"))
        later = {} if run.is_finished else {"Retry-After": str(RETRY_S)}
        return json_answer(run.as_json(), 202, {"Location": f"/v1/runs/{run.id}", **later})

    @Operation(
        "POST /v1/runs/{run_id}/retry", ACCEPTED, scope="chat", problems=(409,), headers=IDEMPOTENT, begins_turn=True
    )
    def retry(self, run_id: str, _body: EmptyBody) -> Response:
        """Go on from the failed stage of a run, as a new run."""
        known, asked_s = known_id(run_id, "run"), time.monotonic()
        wanted = NewRun(**request_fields(f"/v1/runs/{known}/retry", {}))
        run, is_replay = self.service.runs.retry(caller().tenant, known, wanted)
        return self._accepted(run, is_replay=is_replay, asked_s=asked_s)

    @Operation("POST /v1/runs/{run_id}/approvals/{stage_id}", RUN, scope="chat", problems=(409,))
    def decide(self, run_id: str, stage_id: str, said: RunDecisionBody) -> Response:
        """Decide on a stage's output that waits for a person."""
        known, known_stage, by = known_id(run_id, "run"), known_id(stage_id, "stage"), caller().holder.actor
        run = self.service.runs.decide(caller().tenant, known, known_stage, said.decision, said.reason, by=by)
        return json_answer(run.as_json())

    @property
    def _polls(self) -> LongPolls[Run]:
        return LongPolls(self.service.runs.waiter, self.service.keys, self.limiter)

    def _accepted(self, run: Run, *, is_replay: bool, asked_s: float) -> Response:
        where, most_s = f"/v1/runs/{run.id}", self.max_wait_s
        return self._polls.of_accepted(run, where, is_replay=is_replay, asked_s=asked_s, most_s=most_s)
