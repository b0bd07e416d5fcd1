"""What is remembered of a session: its context, what was recalled into it, what left it; and facts of users."""

from typing import Annotated

from flask import Response
from pydantic import ConfigDict, Field

from loom_worker.core.errors import Flaw, NotFound
from loom_worker.core.values.facts import (
    OBJECT_CHARS,
    RELATION_CHARS,
    Correction,
    Fact,
    FactFilter,
    FactSource,
    FactStatus,
)
from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import Snapshot
from loom_worker.core.values.tenants import WorkspaceUser
from loom_worker.core.values.tiers import Scope
from web.answers import json_answer, known_id, known_user, page_answer
from web.bodies import Body, Name
from web.caller import caller
from web.check import ABSENT, NOT_BLANK, Moment
from web.learned import LEARNED_PART
from web.operation import NO_CONTENT, Operation, Views
from web.query import PRINTABLE, PageQuery
from web.schemas import NUMBER, list_of, nullable, one_of, record

MOST_RECALLED = 200
"""Messages of one request to recall them; a person seldom means more, and each is looked up."""


class RecallBody(Body):
    """Messages that are added to the session's next questions, until they are cleared."""

    message_ids: list[Name] = Field(
        min_length=1, max_length=MOST_RECALLED, description="Messages of this session, such as a search finds."
    )


class FactPatchBody(Body):
    """What a person says of a fact; absent members stay as they are, but for `confidence`, which becomes 1."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})
    object: str = Field(ABSENT, pattern=NOT_BLANK, max_length=OBJECT_CHARS)
    relation: str = Field(ABSENT, pattern=NOT_BLANK, max_length=RELATION_CHARS)
    confidence: float = Field(ABSENT, ge=0, le=1)
    until: Moment | None = Field(None, description="When it ceased to hold; null or absent: it holds.")

    @classmethod
    def further_flaws(cls, given: Json) -> tuple[Flaw, ...]:
        """It must change something."""
        return () if given else (Flaw("", "must have at least 1 member"),)


class _FactQuery(PageQuery):
    status: FactStatus = Field("open", description="Facts that hold, those that held once, or both.")
    topic: Annotated[str, Field(max_length=1_000), PRINTABLE] | None = Field(
        None, description="Only facts that share a word with it."
    )

    @property
    def wanted(self) -> FactFilter:
        return FactFilter(self.status, self.topic or "")


FACT = record(
    "Fact",
    "Something that is known beyond a session. `object` is a part of it: its third, after subject and relation.",
    "id subject relation object since until superseded_by confidence source user session_id message_id "
    "last_said_at:time created_at",
    Fact,
    subject="text `user` is whoever writes in the sessions of this user.",
    since="time When it began to hold, as far as is known; else when it was first said.",
    until="time? When it ceased to hold; null: it holds.",
    superseded_by="text? The fact that took its place; it may be deleted.",
    confidence="number 0 to 1; each time it is said raises it.",
    source=one_of(FactSource, "`user`: a person corrected it."),
    user="text? In whose session it was said.",
    message_id="text? The message that first said it; null if a person did, or it is deleted.",
)
_TIERS = record(
    "",
    "What the session has beyond its context; null for an agent without tiers of memory.",
    "summarized_messages:whole summarized_until:time?",
    summaries="whole Summaries by date of this session.",
    waiting_messages="whole That have left L1 and make no batch so far.",
    scope=one_of(Scope),
    open_facts="whole Facts that hold and that the session can be told, by the agent's scope.",
)
_SHARE = {**NUMBER, "minimum": 0}
_LAYER, _LAYER_OF_MESSAGES = (
    record("", "What one layer takes; `share` is of the input budget, 0 to 1.", members, share=_SHARE)
    for members in ("tokens:whole", "messages:whole tokens:whole")
)
_LAYERS: Json = {
    **dict.fromkeys(("tools", "rom", "kernel", "l2"), _LAYER),
    **dict.fromkeys(("l1", "recalled"), _LAYER_OF_MESSAGES),
    "patterns": _LAYER,
}
CONTEXT = record(
    "Context",
    "What the model would be sent now, without the next question. Tokens are the provider's, as its latest reply "
    "reported them.",
    "object=context input_budget_tokens:whole used_tokens:whole model:text rom_digest:text agent_version:text? "
    "memory_version:whole",
    layers=record("", "In the order of a request.", **_LAYERS),
    learned=nullable(LEARNED_PART),
    tiers={"anyOf": [_TIERS, {"type": "null"}]},
    embeddings=nullable(record("", "With vectors, and without.", "model:text messages:whole missing:whole")),
)
SNAPSHOT = record(
    "Snapshot",
    "Summaries that left the context when they had grown too long, with the messages they speak of.",
    "id object=snapshot session_id snapshot_type content token_count from_message_id to_message_id created_at",
    Snapshot,
)
RECALLED = record("Recalled", "What all recalled messages of the session take of its context.", "recalled_tokens:whole")


class MemoryViews(Views, tag="memory"):
    """The views of a session's memory."""

    @Operation("GET /v1/sessions/{session_id}/context", CONTEXT)
    def context(self, session_id: str) -> Response:
        """Look at what the model would be sent now, layer by layer."""
        return json_answer(self.service.contexts.context(caller().tenant, known_id(session_id, "session")))

    @Operation("POST /v1/sessions/{session_id}/recalled", RECALLED, scope="chat")
    def recall(self, session_id: str, wanted: RecallBody) -> Response:
        """Put messages back into the context, with the next questions."""
        ids, known = tuple(dict.fromkeys(wanted.message_ids)), known_id(session_id, "session")
        return json_answer({"recalled_tokens": self.service.contexts.recall(caller().tenant, known, ids)})

    @Operation("DELETE /v1/sessions/{session_id}/recalled", RECALLED, scope="chat")
    def clear_recalled(self, session_id: str) -> Response:
        """Take all recalled messages out of the context again."""
        self.service.contexts.clear_recalled(caller().tenant, known_id(session_id, "session"))
        return json_answer({"recalled_tokens": 0})

    @Operation("GET /v1/sessions/{session_id}/snapshots", list_of(SNAPSHOT))
    def snapshots(self, session_id: str, page: PageQuery) -> Response:
        """List former summaries of a session, the newest first."""
        tenant, known = caller().tenant, known_id(session_id, "session")
        return page_answer(self.service.memories.snapshots(tenant, known, limit=page.limit, after=page.after))


class FactViews(Views, tag="users"):
    """The views under ``/v1/users/{user}/facts``, and of the facts of a session."""

    @Operation("GET /v1/users/{user}/facts", list_of(FACT))
    def list(self, user: str, asked: _FactQuery) -> Response:
        """List what is known of a user, the newest first: what holds, unless `status` says otherwise."""
        facts = self.service.facts
        return page_answer(facts.page(_who(user), asked.wanted, limit=asked.limit, after=asked.after))

    @Operation("PATCH /v1/users/{user}/facts/{fact_id}", FACT, scope="chat", problems=(409,))
    def correct(self, user: str, fact_id: str, said: FactPatchBody) -> Response:
        """Correct a fact: it is closed, and the answer is the one in its place."""
        given = Correction(said.relation, said.object, said.given.get("confidence"), said.until)
        by = caller().holder.actor
        return json_answer(self.service.facts.correct(_who(user), known_id(fact_id, "fact"), given, by=by).as_json())

    @Operation("DELETE /v1/users/{user}/facts/{fact_id}", NO_CONTENT, scope="chat")
    def forget(self, user: str, fact_id: str) -> Response:
        """Delete a fact; what was said so far does not bring it back."""
        self.service.facts.forget(_who(user), known_id(fact_id, "fact"), by=caller().holder.actor)
        return Response(status=204)

    @Operation("DELETE /v1/users/{user}/facts", NO_CONTENT, scope="chat")
    def forget_all(self, user: str) -> Response:
        """Delete all that is known of a user; what was said so far does not bring it back."""
        self.service.facts.forget_all(_who(user), by=caller().holder.actor)
        return Response(status=204)

    @Operation("GET /v1/sessions/{session_id}/facts", list_of(FACT), tag="sessions")
    def list_of_session(self, session_id: str, asked: _FactQuery) -> Response:
        """List the facts that a session says, the newest first."""
        tenant, known, rows = caller().tenant, known_id(session_id, "session"), self.service.facts.rows
        return page_answer(rows.page_of_session(tenant, known, asked.wanted, limit=asked.limit, after=asked.after))


def _who(user: str) -> WorkspaceUser:
    """The user, if the caller's key may ask for that one."""
    holder = caller().holder
    if holder.user not in (None, user):
        raise NotFound("no such user")
    return WorkspaceUser(holder.workspace, known_user(user))
