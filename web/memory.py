"""What is remembered of a session: its context, what was recalled into it, and what left it."""

from typing import TYPE_CHECKING

from flask import Response

from web.answers import Route, json_answer, known_id, page_answer
from web.bodies import json_body, message_ids
from web.caller import caller
from web.query import page_wanted

if TYPE_CHECKING:
    from loom_worker.service.service import Service


class MemoryViews:
    """The views of a session's memory."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("GET", "/v1/sessions/<session_id>/context", self.context),
            Route("POST", "/v1/sessions/<session_id>/recalled", self.recall),
            Route("DELETE", "/v1/sessions/<session_id>/recalled", self.clear_recalled),
            Route("GET", "/v1/sessions/<session_id>/snapshots", self.snapshots),
        )

    def context(self, session_id: str) -> Response:
        """Look at what the model would be sent now."""
        return json_answer(self._service.contexts.context(caller().tenant, known_id(session_id, "session")))

    def recall(self, session_id: str) -> Response:
        """Put messages back into the context."""
        ids = message_ids(json_body())
        tokens = self._service.contexts.recall(caller().tenant, known_id(session_id, "session"), ids)
        return json_answer({"recalled_tokens": tokens})

    def clear_recalled(self, session_id: str) -> Response:
        """Take what was recalled out of the context."""
        self._service.contexts.clear_recalled(caller().tenant, known_id(session_id, "session"))
        return json_answer({"recalled_tokens": 0})

    def snapshots(self, session_id: str) -> Response:
        """List former summaries, the newest first."""
        (limit, after), session = page_wanted(), known_id(session_id, "session")
        return page_answer(self._service.memories.snapshots(caller().tenant, session, limit=limit, after=after))
