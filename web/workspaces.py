"""Workspaces: their rules, and what is spent in them."""

from typing import TYPE_CHECKING

from flask import Response

from loom_worker.core.errors import NotFound
from loom_worker.core.values.usage import GROUPS, UsageFilter
from web.answers import Route, json_answer, listed
from web.bodies import json_body, workspace_patch
from web.caller import caller
from web.errors import moment_argument
from web.query import choice_argument, text_argument

if TYPE_CHECKING:
    from loom_worker.service.service import Service


class WorkspaceViews:
    """The views under ``/v1/workspaces``, and ``/v1/usage``."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("GET", "/v1/workspaces/<workspace>", self.get),
            Route("PATCH", "/v1/workspaces/<workspace>", self.patch),
            Route("GET", "/v1/usage", self.usage),
        )

    def get(self, workspace: str) -> Response:
        """Look at the caller's workspace: its rules, and what is used of its budget."""
        return json_answer(self._service.workspaces.report(_own(workspace)))

    def patch(self, workspace: str) -> Response:
        """Change its rules."""
        changes = workspace_patch(json_body())
        by = caller().holder.actor
        return json_answer(self._service.workspaces.change(_own(workspace), changes, by=by))

    def usage(self) -> Response:
        """Sum tokens and cost of the workspace."""
        group_by = choice_argument("group_by", GROUPS) or "workspace"
        where = UsageFilter(
            turn_id=text_argument("turn"),
            session_id=text_argument("session"),
            agent=text_argument("agent"),
            model=text_argument("model"),
            kind=text_argument("kind"),
            since_ms=moment_argument("since"),
            until_ms=moment_argument("until"),
        )
        rows = self._service.usage(caller().tenant, group_by=group_by, where=where)
        return json_answer(listed(rows, "key"))


def _own(workspace: str) -> str:
    """The caller's own workspace, if that is meant; a key that acts for one user reaches no rules of all users.

    Raises:
        NotFound: another one is meant.
    """
    if caller().tenant != workspace:
        raise NotFound("no such workspace")
    return workspace
