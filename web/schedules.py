"""Schedules: look at them, enable and disable them, start one now."""

from flask import Response
from pydantic import Field

from loom_worker.core.values.runs import Run
from loom_worker.core.values.schedules import ScheduleKind
from web.answers import json_answer, known_id, listed
from web.bodies import Body, EmptyBody
from web.caller import caller
from web.operation import Operation, Views
from web.problems import RETRY_S
from web.query import PageQuery
from web.runs import RUN
from web.schemas import Named, list_of, one_of, record
from web.turns import TURN


class SchedulePatchBody(Body):
    """An operator's word, which survives restarts and edits of the file."""

    enabled: bool | None = Field(description="null: as the file says.")


SCHEDULE = record(
    "Schedule",
    "When a workflow or an agent is started without a client.",
    "object=schedule workspace:text cron:text timezone:text enabled:flag skip_if_running:flag "
    "max_execution_seconds:number? last_error_at:time?",
    name="text `workflow:NAME`, `agent:NAME` or `agent:NAME:ENTRY`.",
    kind=one_of(ScheduleKind),
    target="text The workflow or agent.",
    enabled_by=one_of(("file", "operator")),
    session_mode=one_of(("new", "persistent")),
    next_at="time? When it is due next; null while it is disabled.",
    last_at="time? The due time that was last begun.",
    last_id="text? The run or turn that was last begun, also beside the plan.",
    last_status="text? Its status; null if it was deleted.",
    last_error="text? Why the last start was refused; null if it was not.",
    skipped="whole Due times skipped because the last run had not ended.",
    missed="whole Due times that came while no worker ran.",
)
SCHEDULE_START = Named("ScheduleStart", {"anyOf": [RUN, TURN], "description": "A workflow's Run, or an agent's Turn."})


class ScheduleViews(Views, tag="workflows"):
    """The views under ``/v1/schedules``."""

    @Operation("GET /v1/schedules", list_of(SCHEDULE))
    def list(self, page: PageQuery) -> Response:
        """List schedules: when each is due next, and what came of the last time."""
        return json_answer(listed(self.service.schedules.listed(caller().tenant), "name", page))

    @Operation("PATCH /v1/schedules/{name}", SCHEDULE, scope="admin")
    def patch(self, name: str, said: SchedulePatchBody) -> Response:
        """Enable or disable a schedule, whatever its file says; null: the file's word counts again."""
        known, by = known_id(name, "schedule"), caller().holder.actor
        return json_answer(self.service.schedules.enable(caller().tenant, known, said.enabled, by=by))

    @Operation("POST /v1/schedules/{name}/run", {202: SCHEDULE_START}, scope="admin", problems=(409,))
    def start(self, name: str, _body: EmptyBody) -> Response:
        """Start what a schedule starts now, beside its plan."""
        known, by = known_id(name, "schedule"), caller().holder.actor
        begun = self.service.schedules.start(caller().tenant, known, by=by)
        where = "runs" if isinstance(begun, Run) else "turns"
        headers = {"Location": f"/v1/{where}/{begun.id}", "Retry-After": str(RETRY_S)}
        return json_answer(begun.as_json(), 202, headers)
