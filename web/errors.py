"""Errors of tools, as who looks after a workspace reads them."""

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from flask import Response, request

from loom_worker.core.errors import NotFound
from loom_worker.core.values.tools import ErrorFilter, StoredError
from web.answers import Route, is_id, json_answer, page_answer
from web.caller import caller
from web.problems import malformed
from web.query import page_wanted, text_argument

if TYPE_CHECKING:
    from loom_worker.service.service import Service

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+ -]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
        return page_answer(
            self._service.tool_errors.page(caller().workspace, wanted, limit=limit, after=after), StoredError.as_json
        )

    def get(self, error_id: str) -> Response:
        """Look at one error."""
        if not is_id(error_id):
            raise NotFound("no such error")
        return json_answer(self._service.tool_errors.get(caller().workspace, error_id).as_json())


def moment_argument(name: str) -> int | None:
    """A query parameter that is a time of RFC 3339, in milliseconds since 1970; None if absent or empty.

    The plus sign of its offset may have become a space, as it does in a URL where nobody escaped it.

    Raises:
        Refused: 400 for anything else.
    """
    raw = request.args.get(name)
    if not raw:
        return None
    parts = _MOMENT.fullmatch(raw)
    try:
        if parts is None:
            raise ValueError(raw)
        day, time, fraction, offset = parts.groups()
        moment = datetime.fromisoformat(f"{day}T{time}{offset.upper().replace(' ', '+')}")
        return (moment - _EPOCH) // timedelta(milliseconds=1) + int((fraction or ".")[1:4].ljust(3, "0"))
    except (ValueError, OverflowError) as error:
        raise malformed(f"{name} must be a time such as 2026-11-21T09:30:00Z (RFC 3339)") from error
