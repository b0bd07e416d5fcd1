"""Sessions and the messages in them."""

from typing import TYPE_CHECKING

from flask import Response, request

from loom_worker.core.values.pages import PLACES, Hit
from web.answers import Route, json_answer, known_id, list_answer, page_answer
from web.bodies import json_body, new_session, session_patch
from web.caller import caller
from web.problems import malformed
from web.query import choice_argument, page_wanted, whole_argument

if TYPE_CHECKING:
    from loom_worker.service.service import Service


HITS, MOST_HITS = 10, 50
LONGEST_QUESTION = 4000


class SessionViews:
    """The views under ``/v1/sessions``, but for turns."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("POST", "/v1/sessions", self.create),
            Route("GET", "/v1/sessions", self.list),
            Route("GET", "/v1/sessions/<session_id>", self.get),
            Route("PATCH", "/v1/sessions/<session_id>", self.patch),
            Route("DELETE", "/v1/sessions/<session_id>", self.delete),
            Route("GET", "/v1/sessions/<session_id>/messages", self.messages),
            Route("GET", "/v1/sessions/<session_id>/messages/<message_id>", self.message),
            Route("GET", "/v1/sessions/<session_id>/search", self.search),
        )

    def create(self) -> Response:
        """Make a session."""
        session = self._service.create_session(caller().tenant, new_session(json_body()), by=caller().holder.actor)
        return json_answer(session.as_json(), 201, {"Location": f"/v1/sessions/{session.id}"})

    def list(self) -> Response:
        """List the workspace's sessions."""
        limit, after = page_wanted()
        return page_answer(self._service.sessions.page(caller().tenant, limit=limit, after=after))

    def get(self, session_id: str) -> Response:
        """Look at one session."""
        return json_answer(self._service.sessions.get(caller().tenant, known_id(session_id, "session")).as_json())

    def patch(self, session_id: str) -> Response:
        """Change some fields of a session."""
        patch, holder = session_patch(json_body()), caller().holder
        known, may = known_id(session_id, "session"), "admin" in holder.scopes
        session = self._service.patch_session(caller().tenant, known, patch, may_choose_any=may, by=holder.actor)
        return json_answer(session.as_json())

    def delete(self, session_id: str) -> Response:
        """Delete a session with all that belongs to it."""
        self._service.delete_session(caller().tenant, known_id(session_id, "session"), by=caller().holder.actor)
        return Response(status=204)

    def messages(self, session_id: str) -> Response:
        """List a session's messages, oldest first."""
        (limit, after), session = page_wanted(), known_id(session_id, "session")
        return page_answer(self._service.messages.page(caller().tenant, session, limit=limit, after=after))

    def message(self, session_id: str, message_id: str) -> Response:
        """Look at one message, whole."""
        known_id(message_id, "message")
        found = self._service.messages.get(caller().tenant, known_id(session_id, "session"), message_id)
        return json_answer(found.as_json())

    def search(self, session_id: str) -> Response:
        """Find messages by ``?q``; ``?limit`` is 10 unless given, more than 50 counts as 50; ``?one_per`` passage."""
        question, limit = request.args.get("q", ""), whole_argument("limit", HITS)
        if limit < 1 or len(question) > LONGEST_QUESTION:
            raise malformed(f"limit must be 1 to {MOST_HITS}, q at most {LONGEST_QUESTION} characters")
        most = min(limit, MOST_HITS)
        is_apart = choice_argument("one_per", PLACES) == "passage"
        session, search = known_id(session_id, "session"), self._service.search
        hits = search.session(caller().tenant, session, question, limit=most, is_apart=is_apart)
        return list_answer(map(Hit.as_json, hits))
