"""Errors of tools, as who looks after a workspace reads them."""

from typing import TYPE_CHECKING

from flask import Response, request

from loom_worker.core.values.json import from_rfc3339
from loom_worker.core.values.tools import ErrorFilter
from web.answers import Route, json_answer, known_id, page_answer
from web.caller import caller
from web.problems import malformed
from web.query import page_wanted, text_argument

if TYPE_CHECKING:
    from loom_worker.service.service import Service


class ErrorViews:
    """The views under ``/v1/errors``."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("GET", "/v1/errors", self.list),
            Route("GET", "/v1/errors/<error_id>", self.get),
        )

    def list(self) -> Response:
        """List errors, the newest first; ``?until`` is the first moment that is too late."""
        limit, after = page_wanted()
        wanted = ErrorFilter(
            session_id=text_argument("session"),
            tool=text_argument("tool"),
            since_ms=moment_argument("since"),
            until_ms=moment_argument("until"),
        )
        return page_answer(self._service.agent_errors.page(caller().tenant, wanted, limit=limit, after=after))

    def get(self, error_id: str) -> Response:
        """Look at one error."""
        return json_answer(self._service.agent_errors.get(caller().tenant, known_id(error_id, "error")).as_json())


def moment_argument(name: str) -> int | None:
    """A query parameter that is a time of RFC 3339, in milliseconds since 1970; None if absent or empty.

    The plus sign of its offset may have become a space, as it does in a URL where nobody escaped it.

    Raises:
        Refused: 400 for anything else.
    """
    raw = request.args.get(name)
    if not raw:
        return None
    moment_ms = from_rfc3339(raw.replace(" ", "+"))
    if moment_ms is None:
        raise malformed(f"{name} must be a time such as 2026-11-21T09:30:00Z (RFC 3339)")
    return moment_ms
