"""The audit: who did what, in the caller's workspace."""

from typing import TYPE_CHECKING

from flask import Response

from loom_worker.core.values.audit import ACTIONS, AuditFilter
from web.answers import Route, page_answer
from web.caller import caller
from web.errors import moment_argument
from web.query import choice_argument, page_wanted, text_argument

if TYPE_CHECKING:
    from loom_worker.service.service import Service


class AuditViews:
    """The view under ``/v1/audit``."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def routes(self) -> tuple[Route, ...]:
        """Where the view is mounted."""
        return (Route("GET", "/v1/audit", self.list),)

    def list(self) -> Response:
        """List rows, the newest first; ``?until`` is the first moment that is too late."""
        limit, after = page_wanted()
        wanted = AuditFilter(
            action=choice_argument("kind", ACTIONS),
            user=text_argument("user", longest=256),
            agent=text_argument("agent"),
            session_id=text_argument("session"),
            turn_id=text_argument("turn"),
            since_ms=moment_argument("since"),
            until_ms=moment_argument("until"),
        )
        return page_answer(self._service.audit.page(caller().tenant, wanted, limit=limit, after=after))
