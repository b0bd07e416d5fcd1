"""What is sent on: webhook deliveries, and messages between agents; both can be sent again."""

from typing import Annotated

from flask import Response
from pydantic import Field

from loom_worker.core.values.agent_messages import AgentMessage, MessageStatus
from loom_worker.core.values.notifications import Delivery
from web.answers import json_answer, known_id, page_answer
from web.bodies import EmptyBody
from web.caller import caller
from web.operation import Operation, Views
from web.query import PRINTABLE, PageQuery
from web.schemas import CUT, list_of, record

AGENT_CHARS = 193
"""Characters of an agent's name; one that a workflow defines has the workflow's before its own."""


class _AgentMessageQuery(PageQuery):
    agent: Annotated[str, Field(max_length=AGENT_CHARS), PRINTABLE] | None = Field(
        None, description="Only messages to this agent."
    )
    status: MessageStatus | None = None


DELIVERY = record(
    "Delivery",
    "A webhook delivery.",
    "id object=delivery turn_id run_id url status attempts last_status last_error created_at next_attempt_at:time? "
    "delivered_at",
    Delivery,
)
AGENT_MESSAGE = record(
    "AgentMessage",
    "A message from one agent to another. queued: nobody has it; taken: a turn that goes on has it; done: that turn "
    "is completed; dead: nobody gets it any more.",
    "id object=agent_message to from from_session_id:text from_turn_id kind message ref in_reply_to status reason "
    "attempts turn_id user created_at expires_at ended_at",
    AgentMessage,
    also=CUT,
    to="text The agent that it is for.",
    message="text The text; with `ref` only its beginning.",
    ref="text? Of the whole text, where it is stored as a large result.",
    in_reply_to="text? The message that it answers.",
    reason="text? Of a dead one: `expired` (nobody took it) or `attempts` (all turns failed).",
    turn_id="text? The turn that took it last.",
    **{"from": "text The agent that sent it."},
)


class DeliveryViews(Views, tag="operation"):
    """The views under ``/v1/deliveries``."""

    @Operation("GET /v1/deliveries", list_of(DELIVERY))
    def list(self, page: PageQuery) -> Response:
        """List webhook deliveries."""
        return page_answer(self.service.outbox.page(caller().tenant, limit=page.limit, after=page.after))

    @Operation("POST /v1/deliveries/{delivery_id}/replay", {202: DELIVERY}, scope="admin", problems=(409,))
    def replay(self, delivery_id: str, _body: EmptyBody) -> Response:
        """Send a webhook delivery again."""
        known = known_id(delivery_id, "delivery")
        delivery = self.service.replay_delivery(caller().tenant, known, by=caller().holder.actor)
        return json_answer(delivery.as_json(), 202)


class AgentMessageViews(Views, tag="operation"):
    """The views under ``/v1/agent-messages``."""

    @Operation("GET /v1/agent-messages", list_of(AGENT_MESSAGE))
    def list(self, asked: _AgentMessageQuery) -> Response:
        """List messages between agents, the newest first."""
        page = self.service.agent_messages.page(
            caller().tenant, agent=asked.agent, status=asked.status, limit=asked.limit, after=asked.after
        )
        return page_answer(page)

    @Operation("GET /v1/agent-messages/{agent_message_id}", AGENT_MESSAGE)
    def get(self, agent_message_id: str) -> Response:
        """Look at a message between agents, whole."""
        known = known_id(agent_message_id, "message")
        return json_answer(self.service.agent_messages.get(caller().tenant, known).as_json())

    @Operation("POST /v1/agent-messages/{agent_message_id}/replay", AGENT_MESSAGE, scope="admin", problems=(409,))
    def replay(self, agent_message_id: str, _body: EmptyBody) -> Response:
        """Queue a dead message between agents again."""
        known = known_id(agent_message_id, "message")
        message = self.service.replay_message(caller().tenant, known, by=caller().holder.actor)
        return json_answer(message.as_json())
