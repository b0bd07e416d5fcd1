"""Users: all that belongs to one is deleted."""

from typing import TYPE_CHECKING

from flask import Response

from loom_worker.core.errors import NotFound
from loom_worker.core.values.tenants import WorkspaceUser
from web.answers import Route, json_answer, known_user
from web.caller import caller

if TYPE_CHECKING:
    from loom_worker.service.service import Service


class UserViews:
    """The view under ``/v1/users``."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def routes(self) -> tuple[Route, ...]:
        """Where the view is mounted."""
        return (Route("DELETE", "/v1/users/<user>", self.delete),)

    def delete(self, user: str) -> Response:
        """Delete a user's sessions with all in them, and revoke the user's keys."""
        holder = caller().holder
        if holder.user is not None:
            raise NotFound("no such user")
        deleted = self._service.users.delete(WorkspaceUser(holder.workspace, known_user(user)), by=holder.actor)
        self._service.keys.forget()
        return json_answer(deleted.as_json())
