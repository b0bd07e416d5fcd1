"""Sessions and the messages in them."""

from typing import Annotated, Any, Literal

from flask import Response
from pydantic import Field

from loom_worker.core.values.chat import Role
from loom_worker.core.values.pages import Excerpt, Hit
from loom_worker.core.values.sessions import Message, NewSession, Session, SessionPatch, SessionStatus
from web.answers import json_answer, known_id, list_answer, page_answer
from web.bodies import Body, BudgetOverTime, Kernel, Metadata, ModelName, Name, User
from web.caller import caller
from web.check import ABSENT, SESSION_ID, UNIQUE, VERSIONED, Given
from web.operation import NO_CONTENT, Operation, Views
from web.query import Count, PageQuery, Query
from web.schemas import CUT, USAGE, array, list_of, one_of, record

MOST_HITS = 50
LONGEST_QUESTION = 4000
_BUDGET = Given(BudgetOverTime | None)


class NewSessionBody(Body):
    """A session to be made; every member is optional."""

    id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    agent: Name = ABSENT
    user: User | None = None
    title: str | None = Field(None, max_length=500)
    metadata: Metadata = ABSENT
    kernel: Kernel = ABSENT
    budget: Annotated[Any, _BUDGET] = None
    model: ModelName | None = None

    def value(self) -> NewSession:
        """As the service makes it; null counts as absent."""
        return NewSession(**{name: value for name, value in self.given.items() if value is not None})


_ToolName = Annotated[str, Field(max_length=128)]


class SessionPatchBody(Body):
    """What is to change: absent members stay as they are, null clears."""

    title: str | None = Field(None, max_length=500)
    metadata: Metadata = ABSENT
    kernel: Kernel = ABSENT
    status: SessionStatus = ABSENT
    model: ModelName | None = None
    budget: Annotated[Any, _BUDGET] = None
    tools: Annotated[list[_ToolName], Field(max_length=128, json_schema_extra=UNIQUE)] | None = Field(
        None, description="Names, of those the agent may use (GET /v1/tools?agent=…); null: all of them."
    )
    backend: str | None = Field(
        None,
        max_length=1024,
        description="A database, of those in the agent's `backend.scope.databases`; null: the agent's own.",
    )
    agent: str = Field(
        ABSENT,
        pattern=VERSIONED,
        examples=["support@latest"],
        description="The session's own agent in another version: `name@latest`, `name@VERSION`, `name@production` or "
        "`name@canary`. The system text is made anew. A version that no new session gets can only be chosen with the "
        "scope admin.",
    )

    def value(self) -> SessionPatch:
        """As the service makes the change."""
        cleared: Any = frozenset(name for name, value in self.given.items() if value is None)
        tools = None if self.tools is None else tuple(self.tools)
        return SessionPatch(**{**self.given, "tools": tools}, clear=cleared)


class _SearchQuery(Query):
    q: str = Field(
        "",
        max_length=LONGEST_QUESTION,
        description="Words or a question; without any word nothing is searched and nothing found.",
    )
    limit: Count = Field(10, description="Most hits; more than 50 counts as 50.")
    one_per: Literal["message", "passage"] = Field(
        "message",
        description="What takes one place of the limit: each message that matches, or all that match in one passage; "
        "then no message is in two passages.",
    )


SESSION = record(
    "Session",
    "A conversation; its turns take effect one at a time, in the order they were accepted.",
    "id object=session agent user title status busy queue_depth metadata kernel model tools backend agent_version "
    "learned_version budget cumulative_usage created_at updated_at",
    Session,
    also=CUT,
    busy="flag A turn was begun and has not ended.",
    learned_version="whole? Of the learned layer that it began with; null: none.",
    cumulative_usage=USAGE,
)
MESSAGE = record(
    "Message",
    "One message of a conversation.",
    "id object=message session_id turn_id role content:text files:free[] tool_calls:free[] tool_results:free[] usage "
    "token_count timestamp:time",
    Message,
    also=CUT,
    role=one_of(Role),
)
_SHORT = {"type": "string", "maxLength": 200}
_EXCERPT = record(
    "", "What is shown of one message of a passage.", "message_id turn_id role text", Excerpt, text=_SHORT
)
HIT = record(
    "Hit",
    "A message that a search found; a larger score is better, within one search.",
    "message_id turn_id role snippet score passage created_at:time",
    Hit,
    snippet=_SHORT,
    passage=array(_EXCERPT)
    | {"maxItems": 5}
    | {"description": "The message and up to two on each side of it, in the order of the conversation."},
)


class SessionViews(Views, tag="sessions"):
    """The views under ``/v1/sessions``, but for turns."""

    @Operation("POST /v1/sessions", {201: SESSION}, scope="chat", problems=(409,))
    def create(self, new: NewSessionBody) -> Response:
        """Make a session."""
        session = self.service.create_session(caller().tenant, new.value(), by=caller().holder.actor)
        return json_answer(session.as_json(), 201, {"Location": f"/v1/sessions/{session.id}"})

    @Operation("GET /v1/sessions", list_of(SESSION))
    def list(self, page: PageQuery) -> Response:
        """List sessions."""
        return page_answer(self.service.sessions.page(caller().tenant, limit=page.limit, after=page.after))

    @Operation("GET /v1/sessions/{session_id}", SESSION, by_session_token=True)
    def get(self, session_id: str) -> Response:
        """Look at a session."""
        return json_answer(self.service.sessions.get(caller().tenant, known_id(session_id, "session")).as_json())

    @Operation("PATCH /v1/sessions/{session_id}", SESSION, scope="chat", problems=(409,))
    def patch(self, session_id: str, patch: SessionPatchBody) -> Response:
        """Change a session; paused ones queue without running, archived ones refuse turns."""
        holder, known = caller().holder, known_id(session_id, "session")
        may = "admin" in holder.scopes
        session = self.service.patch_session(caller().tenant, known, patch.value(), may_choose_any=may, by=holder.actor)
        return json_answer(session.as_json())

    @Operation("DELETE /v1/sessions/{session_id}", NO_CONTENT, scope="chat")
    def delete(self, session_id: str) -> Response:
        """Delete a session and all in it."""
        self.service.delete_session(caller().tenant, known_id(session_id, "session"), by=caller().holder.actor)
        return Response(status=204)

    @Operation("GET /v1/sessions/{session_id}/messages", list_of(MESSAGE), by_session_token=True)
    def messages(self, session_id: str, page: PageQuery) -> Response:
        """List a session's messages, oldest first."""
        session = known_id(session_id, "session")
        return page_answer(self.service.messages.page(caller().tenant, session, limit=page.limit, after=page.after))

    @Operation("GET /v1/sessions/{session_id}/messages/{message_id}", MESSAGE, by_session_token=True)
    def message(self, session_id: str, message_id: str) -> Response:
        """Look at one message, whole."""
        known_id(message_id, "message")
        found = self.service.messages.get(caller().tenant, known_id(session_id, "session"), message_id)
        return json_answer(found.as_json())

    @Operation("GET /v1/sessions/{session_id}/search", list_of(HIT))
    def search(self, session_id: str, asked: _SearchQuery) -> Response:
        """Find messages of a session, the best first."""
        session, search = known_id(session_id, "session"), self.service.search
        most, is_apart = min(asked.limit, MOST_HITS), asked.one_per == "passage"
        return list_answer(
            map(Hit.as_json, search.session(caller().tenant, session, asked.q, limit=most, is_apart=is_apart))
        )
