"""Facts: what is known of a user is listed, corrected and forgotten."""

from typing import TYPE_CHECKING, get_args

from flask import Response

from loom_worker.core.errors import NotFound
from loom_worker.core.values.facts import FactFilter, FactStatus
from loom_worker.core.values.tenants import WorkspaceUser
from web.answers import Route, json_answer, known_id, known_user, page_answer
from web.bodies import fact_correction, json_body
from web.caller import caller
from web.query import choice_argument, page_wanted, text_argument

if TYPE_CHECKING:
    from loom_worker.service.service import Service

TOPIC_CHARS = 1_000


class FactViews:
    """The views under ``/v1/users/{user}/facts``, and of the facts of a session."""

    def __init__(self, service: "Service") -> None:
        self._facts = service.facts

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("GET", "/v1/users/<user>/facts", self.list),
            Route("DELETE", "/v1/users/<user>/facts", self.forget_all),
            Route("PATCH", "/v1/users/<user>/facts/<fact_id>", self.correct),
            Route("DELETE", "/v1/users/<user>/facts/<fact_id>", self.forget),
            Route("GET", "/v1/sessions/<session_id>/facts", self.list_of_session),
        )

    def list(self, user: str) -> Response:
        """List a user's facts, the newest first."""
        limit, after = page_wanted()
        return page_answer(self._facts.page(_who(user), _wanted(), limit=limit, after=after))

    def list_of_session(self, session_id: str) -> Response:
        """List the facts that a session says, the newest first."""
        limit, after = page_wanted()
        session = known_id(session_id, "session")
        page = self._facts.rows.page_of_session(caller().tenant, session, _wanted(), limit=limit, after=after)
        return page_answer(page)

    def correct(self, user: str, fact_id: str) -> Response:
        """Put another fact in the place of one."""
        given = fact_correction(json_body())
        by = caller().holder.actor
        return json_answer(self._facts.correct(_who(user), known_id(fact_id, "fact"), given, by=by).as_json())

    def forget(self, user: str, fact_id: str) -> Response:
        """Delete a fact for good."""
        self._facts.forget(_who(user), known_id(fact_id, "fact"), by=caller().holder.actor)
        return Response(status=204)

    def forget_all(self, user: str) -> Response:
        """Delete all facts of a user for good."""
        self._facts.forget_all(_who(user), by=caller().holder.actor)
        return Response(status=204)


def _who(user: str) -> WorkspaceUser:
    """The user, if the caller's key may ask for that one."""
    holder = caller().holder
    if holder.user not in (None, user):
        raise NotFound("no such user")
    return WorkspaceUser(holder.workspace, known_user(user))


def _wanted() -> FactFilter:
    status: FactStatus = choice_argument("status", get_args(FactStatus)) or "open"  # type: ignore[assignment]
    return FactFilter(status, text_argument("topic", longest=TOPIC_CHARS) or "")
