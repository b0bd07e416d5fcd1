"""Messages between agents: list them, look at one, queue a dead one again."""

from typing import TYPE_CHECKING, get_args

from flask import Response

from loom_worker.core.values.agent_messages import MessageStatus
from web.answers import Route, json_answer, known_id, page_answer
from web.bodies import no_body
from web.caller import caller
from web.query import choice_argument, page_wanted, text_argument

if TYPE_CHECKING:
    from loom_worker.service.service import Service

AGENT_CHARS = 193
"""Of an agent's name; one that a workflow defines has the workflow's before its own."""


class AgentMessageViews:
    """The views under ``/v1/agent-messages``."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("GET", "/v1/agent-messages", self.list),
            Route("GET", "/v1/agent-messages/<agent_message_id>", self.get),
            Route("POST", "/v1/agent-messages/<agent_message_id>/replay", self.replay),
        )

    def list(self) -> Response:
        """List messages, the newest first; ``?agent`` is the one that they are for."""
        limit, after = page_wanted()
        page = self._service.agent_messages.page(
            caller().tenant,
            agent=text_argument("agent", longest=AGENT_CHARS),
            status=choice_argument("status", get_args(MessageStatus)),
            limit=limit,
            after=after,
        )
        return page_answer(page)

    def get(self, agent_message_id: str) -> Response:
        """Look at one message, whole."""
        known = known_id(agent_message_id, "message")
        return json_answer(self._service.agent_messages.get(caller().tenant, known).as_json())

    def replay(self, agent_message_id: str) -> Response:
        """Queue a dead message again."""
        no_body()
        known = known_id(agent_message_id, "message")
        message = self._service.replay_message(caller().tenant, known, by=caller().holder.actor)
        return json_answer(message.as_json())
