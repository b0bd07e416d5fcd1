"""Turns: submit one, look at it, wait for its end, cancel it, run it again, list them."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, get_args

from flask import Response, current_app, request
from pydantic import AfterValidator, Field
from werkzeug.exceptions import RequestEntityTooLarge

from loom_worker.core.errors import Flaw
from loom_worker.core.values.calls import Call
from loom_worker.core.values.channels import LEAST_CHARS, MOST_CHARS, Channel, ChannelFormat
from loom_worker.core.values.decisions import ApprovalVerdict, Decision
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import CRITICALITIES, JUDGE_TYPES
from loom_worker.core.values.media import InputPart
from loom_worker.core.values.notifications import EventType
from loom_worker.core.values.spans import SpanEvent, SpanKind, SpanStatus, TraceSpan
from loom_worker.core.values.turns import CancelAction, NewTurn, Retry, Turn, TurnStatus, is_blank
from loom_worker.core.values.waiting import Waiting, WaitsFor
from web.answers import json_answer, known_id, listed, page_answer
from web.bodies import (
    WHOLE_NUMBER,
    Amounts,
    Body,
    Deadline,
    EmptyBody,
    Metadata,
    Name,
    User,
    WebhookMember,
    request_fields,
)
from web.caller import caller
from web.check import NOT_BLANK, SESSION_ID, Given, Model, Moment, any_of, expected_of, flawed
from web.files import PartMember, Parts
from web.long_polls import EndAnswer, LongPolls
from web.operation import IDEMPOTENT, Operation, Views
from web.problems import RETRY_S
from web.query import PageQuery, Query, Text, Whole
from web.schemas import CUT, FREE, WHOLE, array, list_of, nullable, one_of, record

MOST_SKEW_MS = 5 * 60 * 1000
"""How far a client's clock may be ahead."""
PLAIN_BUDGET = Given(Amounts | None)


class ChannelMember(Model):
    """Where the answer is read: the model is told, and `output_parts` holds the answer accordingly."""

    name: Name
    format: ChannelFormat = "markdown"
    max_chars: Annotated[int, Field(ge=LEAST_CHARS, le=MOST_CHARS), WHOLE_NUMBER] | None = Field(
        None, description="Unicode characters of one message; a longer answer is split. null: any number."
    )


class ResponseFormatMember(Model):
    """The answer is JSON of this form; one without it is given anew once, then the turn fails (`invalid-output`)."""

    type: Literal["json_schema"]
    form: Json = Field(
        alias="schema",
        description="JSON Schema 2020-12 of an object, at most 64 KiB; no `patternProperties`, no other documents.",
    )
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$(?!\n)")] = "answer"


def _said(said_ms: int) -> int:
    if not 0 <= said_ms <= now_ms() + MOST_SKEW_MS:
        raise flawed("must be a time since 1970 that has passed, with its zone, such as 2023-05-07T13:56:00Z")
    return said_ms


def _visible(given: str) -> str:
    if is_blank(given):  # the pattern lets characters pass that are no blanks, and yet nobody sees
        raise flawed("must not be blank")
    return given


def _values(given: str | list[PartMember]) -> str | tuple[InputPart, ...]:
    return given if isinstance(given, str) else tuple(part.value() for part in given)


_TEXT = Annotated[str, Field(pattern=NOT_BLANK), AfterValidator(_visible)]
_INPUT = Given(any_of(string=_TEXT, array=Parts), _values, of_checked=True)


class NewTurnBody(Body):
    """A turn to be run."""

    input: Annotated[Any, _INPUT] = Field(
        description="What the user says: a text of more than blanks and invisible characters, or parts, among them "
        "images and files. The body may have 28 MiB where they are in base64, else 1 MiB."
    )
    agent: Name | None = Field(
        None, description="Who answers. A session keeps the agent of its first turn: another one is refused (422)."
    )
    double_texting: Literal["enqueue", "reject", "interrupt", "rollback"] = Field(
        "enqueue",
        description="When the session is busy: wait in its lane, be refused (409), or cancel the turn that runs (see "
        "CancelTurn) and wait behind those that are queued.",
    )
    webhook: WebhookMember = None
    deadline_s: Deadline = None
    max_attempts: Annotated[int, Field(ge=1, le=10), WHOLE_NUMBER] | None = Field(
        None, description="Deaths of the worker that runs it before the turn is given up."
    )
    metadata: Metadata = Field(default_factory=dict)
    budget: Annotated[Any, PLAIN_BUDGET] = None
    user: User | None = Field(
        None,
        description="Who asks, as the channel names the user. A pairing of the channel says which user of the "
        "workspace that is; without one it is this name. A session keeps the user of its first turn.",
    )
    channel: ChannelMember | None = None
    response_format: ResponseFormatMember | None = Field(None, description="null: as the agent's file says.")
    said_at: Annotated[Moment, AfterValidator(_said)] | None = Field(
        None,
        description="When it was said, for a chat that is moved in from elsewhere: the date of the turn's messages, "
        "the reply included. The order stays that of the turns. null: now.",
    )

    @classmethod
    def read(cls) -> Self:
        """The body of the current request; what is not base64 in it keeps within the usual bound."""
        size_bytes = len(request.get_data())
        found, usual_bytes = super().read(), current_app.config["MAX_CONTENT_LENGTH"]
        packed = sum((len(part.data) + 2) // 3 * 4 for part in found.parts if part.data is not None)
        if usual_bytes is not None and size_bytes - packed > usual_bytes:
            raise RequestEntityTooLarge
        return found

    @classmethod
    def further_flaws(cls, given: Json) -> Iterator[Flaw]:
        """The session's id stands in the path, but a turn makes its session: the rule is that of a new one."""
        session_id = (request.view_args or {})["session_id"]
        if not re.search(SESSION_ID, session_id):
            yield Flaw("/session_id", f"in the path: {expected_of(SESSION_ID)}")

    @property
    def parts(self) -> tuple[InputPart, ...]:
        """The parts of its input; a text has none."""
        return () if isinstance(self.input, str) else self.input

    def value(self, session_id: str) -> NewTurn:
        """As the service takes it; ``agent`` belongs to the session."""
        at = self.channel
        return NewTurn(
            input=self.input if isinstance(self.input, str) else "",
            parts=self.parts,
            webhook=self.webhook,
            deadline_s=self.deadline_s,
            max_attempts=self.max_attempts,
            budget=self.budget,
            metadata=self.metadata,
            double_texting=self.double_texting,
            user=self.user,
            channel=None if at is None else Channel(at.name, at.format, at.max_chars),
            said_ms=self.said_at,
            **request_fields(session_id, self.given),
        )


class CancelTurnBody(Body):
    """How to end a turn; an empty object or no body means `interrupt`."""

    is_optional = True
    action: CancelAction = Field(
        "interrupt",
        description="interrupt: what was said stays. rollback: as if the turn never ran. finish: one last model call "
        "without tools, then the turn is completed.",
    )


class DecisionBody(Body):
    """What a person says to a tool call that waits for it."""

    decision: ApprovalVerdict = Field(
        description="approve: the call runs as the model asked. edit: it runs with `arguments`. reject: the model is "
        "told, with `reason`, that it may not run."
    )
    arguments: Json | None = Field(None, description="With `edit`: all arguments, as the tool's schema has them.")
    reason: str | None = Field(None, max_length=1000)

    @classmethod
    def further_flaws(cls, given: Json) -> Iterator[Flaw]:
        """Arguments go with one decision alone."""
        verdict, has_arguments = given.get("decision"), given.get("arguments") is not None
        if verdict in get_args(ApprovalVerdict) and has_arguments != (verdict == "edit"):
            yield Flaw("/arguments", "must be there with edit, and with nothing else")


class _TurnQuery(PageQuery):
    status: TurnStatus | None = None
    reason: Text | None = Field(None, description="Such as `dead`.")


class WaitQuery(Query):
    """How long to wait for an end."""

    wait: Whole = Field(
        0,
        description="Seconds to wait for the end, or until a person is asked; more than 60 counts as 60. With no slot "
        "free: answered at once.",
    )


class ResumeQuery(Query):
    """Where a stream of events begins."""

    starting_after: Whole = Field(0, description="The last event id the reader has.")


_SCORE: Json = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_VERDICT = record(
    "",
    "What one judge said of an answer.",
    "name:text passed:flag? weight:number cost_usd:number? duration_ms:whole?",
    type=one_of(JUDGE_TYPES),
    status=one_of(("scored", "undecided", "dead")),
    score=_SCORE,
    critique="text? What the answer lacks.",
    error="text? Why the judge gave no score.",
    criticality=one_of(CRITICALITIES),
    model="text? The model that was asked.",
)
_JUDGE = record(
    "",
    "What judges made of the latest answer that all of them have looked at.",
    "passed:flag?",
    score=_SCORE | {"description": "Of all judges, by the strategy; null: nobody could say anything."},
    attempts="whole Answers that were judged.",
    verdicts=array(_VERDICT),
)
CHANNEL = record("Channel", "Where the answer to a turn is read.", "name format max_chars", Channel)
TOOL_CALL = record(
    "ToolCall",
    "One tool call of a turn; its content is capped.",
    "id name arguments status duration_ms:whole? content error_id ref approval approve_by:time? child_turn_id",
    Call,
    error_id="text? The whole error: GET /v1/errors/{error_id}.",
    ref="text? The whole result: GET /v1/blobs/{ref}.",
    child_turn_id="text? The turn of another agent that it waits for, or waited for.",
)
WAITING = record(
    "Waiting",
    "What a turn waits for.",
    "for since:time attempt next_try_at last_error",
    Waiting,
    attempt="whole? Requests to the model for this reply, or sends of a call.",
    next_try_at="time? When the model is asked again.",
    last_error="text? The model's latest error since its last reply.",
    **{"for": one_of(WaitsFor)},
)
TURN = record(
    "Turn",
    "One user message and its answer. Final statuses: completed, failed, cancelled, incomplete.",
    "id object=turn session_id seq agent agent_version model user budget status reason position attempt:whole input "
    "output_text output_parsed output_parts channel tool_calls patterns judge learned_version usage error waiting "
    "timings trace_id metadata retry_of run_id parent_turn_id cancel said_at created_at started_at completed_at",
    Turn,
    also=CUT,
    agent_version="text? Of the agent that ran it; null before it has run.",
    model="text? The model that answers it; null before it has run.",
    user="text? Of its session, when it was accepted.",
    parent_turn_id="text? Of the turn that asked for it and waits, if another agent did.",
    input={"type": ["string", "array"], "items": FREE, "description": "As given; a file_id in the place of base64."},
    output_text="text? The answer: what the turn said last, as it was streamed.",
    output_parsed="free? The answer as an object, if it had to have a form; null if it is not whole, and in lists.",
    output_parts="text[]? The answer as messages of its channel, in order.",
    channel=nullable(CHANNEL),
    tool_calls=array(TOOL_CALL),
    judge={"anyOf": [_JUDGE, {"type": "null"}]},
    learned_version="whole? Of the learned layer that it ran with; null: none.",
    waiting=nullable(WAITING) | {"description": "Null once the turn has ended."},
    timings=record(
        "",
        "Milliseconds; null until known.",
        **dict.fromkeys(("queued_ms", "run_ms", "first_token_ms"), nullable(WHOLE)),
    ),
)
_SPAN_EVENT = record("", "A moment of it.", "name time:time attributes:free", SpanEvent)
TRACE_SPAN = record(
    "TraceSpan",
    "One part of a turn, from its beginning to its end.",
    "trace_id span_id parent_id name start_time:time end_time duration_ms:number? attributes events status "
    "status_message",
    TraceSpan,
    parent_id="text? Null of the root; a span of the client, where it sent a `traceparent`.",
    end_time="time? Null while it goes on.",
    attributes="free Named as docs/tracing.md says.",
    events=array(_SPAN_EVENT),
    status=one_of(SpanStatus),
    status_message="text Why it is an error.",
    kind=one_of(SpanKind),
)
EVENT = record(
    "Event",
    "One server-sent event: the `id`, `event` and `data` lines, data being JSON on one line. Ids are 1, 2, 3… without "
    "gaps. Terminal events carry the whole Turn; after `turn.retrying` drop the deltas since `turn.started`, after "
    "`stream.reset` read again from 1.",
    "id:whole data:free",
    event=one_of(EventType),
)
ACCEPTED = {202: TURN, 200: TURN}


class TurnViews(Views, tag="turns"):
    """The views of turns, but for their events."""

    @Operation(
        "POST /v1/sessions/{session_id}/turns",
        ACCEPTED,
        scope="chat",
        problems=(409,),
        headers=IDEMPOTENT,
        by_session_token=True,
        streams="large",
        begins_turn=True,
    )
    def submit(self, session_id: str, body: NewTurnBody) -> Response:
        """Submit a turn; the session is made if it is new."""
        new = body.value(session_id)
        if body.response_format is not None:
            new = replace(new, response_format=self.service.response_format(body.given))
        if new.webhook is not None:
            self.service.check_webhook(new.webhook)
        asked_s = time.monotonic()
        turn, is_replay = self.service.submit(caller().tenant, session_id, new, agent=body.agent)
        return self._accepted(turn, is_replay=is_replay, asked_s=asked_s)

    @Operation("GET /v1/sessions/{session_id}/turns", list_of(TURN), by_session_token=True)
    def list_of_session(self, session_id: str, asked: _TurnQuery) -> Response:
        """List a session's turns."""
        return self._listed(known_id(session_id, "session"), asked)

    @Operation("GET /v1/turns", list_of(TURN))
    def list(self, asked: _TurnQuery) -> Response:
        """List turns."""
        return self._listed(None, asked)

    @Operation("GET /v1/turns/{turn_id}", TURN, by_session_token=True)
    def get(self, turn_id: str, asked: WaitQuery) -> Response:
        """Look at a turn, or wait for its end."""
        return self._polls.of(known_id(turn_id, "turn"), EndAnswer(min(asked.wait, self.max_wait_s)))

    @Operation("GET /v1/turns/{turn_id}/trace", list_of(TRACE_SPAN))
    def trace(self, turn_id: str, page: PageQuery) -> Response:
        """List the spans of a turn's trace, while it runs and after."""
        spans = self.service.traces.of_turn(caller().tenant, known_id(turn_id, "turn"))
        return json_answer(listed((span.as_json() for span in spans), "span_id", page))

    @Operation("POST /v1/turns/{turn_id}/cancel", {202: TURN}, scope="chat")
    def cancel(self, turn_id: str, how: CancelTurnBody) -> Response:
        """Ask a turn to end; one that has ended is answered as it is."""
        turn = self.service.cancel(caller().tenant, known_id(turn_id, "turn"), how.action)
        later = {} if turn.is_finished else {"Retry-After": str(RETRY_S)}
        return json_answer(turn.as_json(), 202, {"Location": f"/v1/turns/{turn.id}", **later})

    @Operation(
        "POST /v1/turns/{turn_id}/retry", ACCEPTED, scope="chat", problems=(409,), headers=IDEMPOTENT, begins_turn=True
    )
    def retry(self, turn_id: str, _body: EmptyBody) -> Response:
        """Run a failed turn's question again, as a new turn at the tail of its lane."""
        known, asked_s = known_id(turn_id, "turn"), time.monotonic()
        wanted = Retry(**request_fields(f"/v1/turns/{known}/retry", {}))
        turn, is_replay = self.service.retry(caller().tenant, known, wanted)
        return self._accepted(turn, is_replay=is_replay, asked_s=asked_s)

    @Operation("POST /v1/turns/{turn_id}/approvals/{call_id}", TURN, scope="chat", problems=(409,))
    def decide(self, turn_id: str, call_id: str, said: DecisionBody) -> Response:
        """Decide on a tool call that waits for a person."""
        decided = Decision(said.decision, arguments=said.arguments, reason=said.reason, by=caller().holder.actor)
        known, known_call = known_id(turn_id, "turn"), known_id(call_id, "tool call")
        return json_answer(self.service.approvals.decide(caller().tenant, known, known_call, decided).as_json())

    def _listed(self, session_id: str | None, asked: _TurnQuery) -> Response:
        page = self.service.turns(
            caller().tenant,
            session_id=session_id,
            status=asked.status,
            reason=asked.reason,
            limit=asked.limit,
            after=asked.after,
        )
        return page_answer(page)

    @property
    def _polls(self) -> LongPolls[Turn]:
        return LongPolls(self.service.waiter, self.service.keys, self.limiter)

    def _accepted(self, turn: Turn, *, is_replay: bool, asked_s: float) -> Response:
        where, most_s = f"/v1/turns/{turn.id}", self.max_wait_s
        return self._polls.of_accepted(turn, where, is_replay=is_replay, asked_s=asked_s, most_s=most_s)
