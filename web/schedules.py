"""Schedules: look at them, enable and disable them, start one now."""

from typing import TYPE_CHECKING

from flask import Response

from loom_worker.core.values.runs import Run
from web.answers import Route, json_answer, known_id, listed
from web.bodies import json_body, no_body, schedule_patch
from web.caller import caller
from web.problems import RETRY_S

if TYPE_CHECKING:
    from loom_worker.service.service import Service


class ScheduleViews:
    """The views under ``/v1/schedules``."""

    def __init__(self, service: "Service") -> None:
        self._schedules = service.schedules

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("GET", "/v1/schedules", self.list),
            Route("PATCH", "/v1/schedules/<name>", self.patch),
            Route("POST", "/v1/schedules/<name>/run", self.start),
        )

    def list(self) -> Response:
        """List the workspace's schedules, by name."""
        return json_answer(listed(self._schedules.listed(caller().tenant), "name"))

    def patch(self, name: str) -> Response:
        """Enable or disable a schedule, whatever its file says."""
        enabled = schedule_patch(json_body())
        by = caller().holder.actor
        return json_answer(self._schedules.enable(caller().tenant, known_id(name, "schedule"), enabled, by=by))

    def start(self, name: str) -> Response:
        """Start what a schedule starts, now."""
        no_body()
        begun = self._schedules.start(caller().tenant, known_id(name, "schedule"), by=caller().holder.actor)
        where = "runs" if isinstance(begun, Run) else "turns"
        headers = {"Location": f"/v1/{where}/{begun.id}", "Retry-After": str(RETRY_S)}
        return json_answer(begun.as_json(), 202, headers)
