"""JSON Schemas of what the API answers, for the OpenAPI document and the tests that hold answers against it.

What a dataclass becomes is described by its fields; only members that its ``as_json`` makes of something else stand
here. What no dataclass stands for is written down whole.
"""

from dataclasses import fields
from typing import get_args

from loom_worker.core.values.agent_messages import AgentMessage
from loom_worker.core.values.agents import UNSHOWN, Agent
from loom_worker.core.values.api_keys import ApiKey
from loom_worker.core.values.audit import ACTIONS, AuditEntry
from loom_worker.core.values.calls import Call
from loom_worker.core.values.channels import Channel, Pairing
from loom_worker.core.values.chat import Role, Usage
from loom_worker.core.values.judges import CRITICALITIES, JUDGE_TYPES
from loom_worker.core.values.notifications import Delivery, EventType
from loom_worker.core.values.patterns import Effect, Pattern, PatternMatch
from loom_worker.core.values.sessions import Message, Session
from loom_worker.core.values.spans import SpanEvent, SpanKind, SpanStatus, TraceSpan
from loom_worker.core.values.tools import StoredError, Tool
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.waiting import Waiting, WaitsFor
from web.agent_version_schemas import AGENT_VERSION_ANSWERS
from web.fact_schemas import FACT_ANSWERS
from web.learned_schemas import LEARNED_ANSWERS
from web.memory_schemas import MEMORY_ANSWERS
from web.run_schemas import RUN_ANSWERS
from web.schedule_schemas import SCHEDULE_ANSWERS
from web.schemas import (
    CUT,
    FLAG,
    FREE,
    NUMBER,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    answer,
    array,
    described,
    members,
    one_of,
    or_null,
    ref,
)

_USAGE = members(Usage, "input_tokens output_tokens cache_read_tokens cache_write_tokens cost_usd llm_calls")

_SCORE: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_VERDICT = answer(
    {
        "name": TEXT,
        "type": {"type": "string", "enum": list(JUDGE_TYPES)},
        "status": {"type": "string", "enum": ["scored", "undecided", "dead"]},
        "score": _SCORE,
        "passed": or_null(FLAG),
        "critique": described(or_null(TEXT), "What the answer lacks."),
        "error": described(or_null(TEXT), "Why the judge gave no score."),
        "criticality": {"type": "string", "enum": list(CRITICALITIES)},
        "weight": NUMBER,
        "model": described(or_null(TEXT), "The model that was asked."),
        "cost_usd": or_null(NUMBER),
        "duration_ms": or_null(WHOLE),
    },
    description="What one judge said of an answer.",
)
_JUDGE: Schema = {
    "anyOf": [
        answer(
            {
                "score": described(_SCORE, "Of all judges, by the strategy; null: nobody could say anything."),
                "passed": or_null(FLAG),
                "attempts": described(WHOLE, "Answers that were judged."),
                "verdicts": array(_VERDICT),
            },
            description="What judges made of the latest answer that all of them have looked at.",
        ),
        {"type": "null"},
    ]
}

_TURN = answer(
    members(
        Turn,
        "id object session_id seq agent agent_version model user budget status reason position attempt input "
        "output_text output_parts channel tool_calls patterns judge learned_version usage error waiting timings "
        "trace_id metadata retry_of run_id parent_turn_id cancel said_at created_at started_at completed_at",
        object={"const": "turn"},
        attempt=WHOLE,
        agent_version=described(or_null(TEXT), "Of the agent that ran it; null before it has run."),
        model=described(or_null(TEXT), "The model that answers it; null before it has run."),
        user=described(or_null(TEXT), "Of its session, when it was accepted."),
        parent_turn_id=described(or_null(TEXT), "Of the turn that asked for it and waits, if another agent did."),
        output_text=described(or_null(TEXT), "The answer: what the turn said last, as it was streamed."),
        output_parts=described(or_null(array(TEXT)), "The answer as messages of its channel, in order."),
        channel={"anyOf": [ref("Channel"), {"type": "null"}]},
        tool_calls=array(ref("ToolCall")),
        judge=_JUDGE,
        learned_version=described(or_null(WHOLE), "Of the learned layer that it ran with; null: none."),
        waiting={"anyOf": [ref("Waiting"), {"type": "null"}], "description": "Null once the turn has ended."},
        timings=answer(
            {"queued_ms": or_null(WHOLE), "run_ms": or_null(WHOLE), "first_token_ms": or_null(WHOLE)},
            description="Milliseconds; null until known.",
        ),
    ),
    description="One user message and its answer. Final statuses: completed, failed, cancelled, incomplete.",
    also=CUT,
)

_TOOL_CALL = answer(
    members(
        Call,
        "id name arguments status duration_ms content error_id ref approval approve_by child_turn_id",
        duration_ms=or_null(WHOLE),
        error_id=described(or_null(TEXT), "The whole error: GET /v1/errors/{error_id}."),
        ref=described(or_null(TEXT), "The whole result: GET /v1/blobs/{ref}."),
        approve_by=or_null(TIME),
        child_turn_id=described(or_null(TEXT), "The turn of another agent that it waits for, or waited for."),
    ),
    description="One tool call of a turn; its content is capped.",
)

_WAITING = answer(
    members(
        Waiting,
        "for since attempt next_try_at last_error",
        **{"for": one_of(WaitsFor)},
        since=TIME,
        attempt=described(or_null(WHOLE), "Requests to the model for this reply, or sends of a call."),
        next_try_at=described(or_null(TIME), "When the model is asked again."),
        last_error=described(or_null(TEXT), "The model's latest error since its last reply."),
    ),
    description="What a turn waits for.",
)

_SESSION = answer(
    members(
        Session,
        "id object agent user title status busy queue_depth metadata kernel model tools backend agent_version "
        "learned_version budget cumulative_usage created_at updated_at",
        object={"const": "session"},
        busy=described(FLAG, "A turn was begun and has not ended."),
        learned_version=described(or_null(WHOLE), "Of the learned layer that it began with; null: none."),
        cumulative_usage=ref("Usage"),
    ),
    description="A conversation; its turns take effect one at a time, in the order they were accepted.",
    also=CUT,
)

_MESSAGE = answer(
    members(
        Message,
        "id object session_id turn_id role content tool_calls tool_results usage token_count timestamp",
        object={"const": "message"},
        role=one_of(Role),
        content=TEXT,
        tool_calls=array(FREE),
        tool_results=array(FREE),
        timestamp=TIME,
    ),
    description="One message of a conversation.",
    also=CUT,
)

_EVENT = answer(
    {"id": WHOLE, "event": one_of(EventType), "data": FREE},
    description="One server-sent event: the `id`, `event` and `data` lines, data being JSON on one line. "
    "Ids are 1, 2, 3… without gaps. Terminal events carry the whole Turn; after `turn.retrying` drop the deltas "
    "since `turn.started`, after `stream.reset` read again from 1.",
)

_DELIVERY = answer(
    members(
        Delivery,
        "id object turn_id run_id url status attempts last_status last_error created_at next_attempt_at delivered_at",
        object={"const": "delivery"},
        next_attempt_at=or_null(TIME),
    ),
    description="A webhook delivery.",
)

_ERROR = answer(
    members(
        StoredError,
        "id object session_id turn_id span_id tool_name timestamp short_summary raw_error",
        object={"const": "error"},
        span_id=described(or_null(TEXT), "Where in the turn's trace; null for errors of older versions."),
        tool_name=described(or_null(TEXT), "null: not a call, but the turn itself failed."),
        timestamp=TIME,
        short_summary={"type": "string", "maxLength": 100},
        raw_error={
            "type": "object",
            "properties": {"message": TEXT, "code": TEXT, "detail": TEXT},
            "required": ["message"],
        },
    ),
    description="A failed tool call, or why a turn failed: one line, and all that is kept. Secrets are taken out.",
    also=CUT,
)

_AGENT = answer(
    members(
        Agent,
        "name object version description provider model tools max_llm_calls max_tool_calls timeout_s patterns_enabled "
        "unknown_keys",
        object={"const": "agent"},
        tools={"type": ["array", "null"], "items": TEXT, "description": "null: every tool there is."},
    ),
    description="Who answers. Agents come from YAML files; null means the setting of the process holds.",
    also=members(Agent, " ".join(each.name for each in fields(Agent) if each.name not in UNSHOWN | {"tools"})),
)

_TOOL = answer(
    members(
        Tool,
        "name object description input_schema is_read_only is_idempotent needs_approval timeout_s",
        name=TEXT,
        object={"const": "tool"},
        description=TEXT,
        input_schema=FREE,
        needs_approval=described(FLAG, "A call by this agent waits for a person."),
    ),
    description="A tool, with the JSON Schema of its arguments.",
)

_PATTERN_LINE = members(
    Pattern,
    "id object title description category difficulty backend_type tags source version",
    object={"const": "pattern"},
    source=described(TEXT, "File and line, within the library's folder."),
    version=described(TEXT, "Another one as soon as the pattern says something else."),
)
_PATTERN_LIST = answer(
    {
        "object": {"const": "list"},
        "data": array(answer(_PATTERN_LINE, description="A pattern.")),
        "has_more": {"const": False},
        "next": {"type": "null"},
        "errors": described(array(TEXT), "What of the library's files could not be read, and why."),
        "loaded_at": TIME,
        "processes": described(array(FREE), "What each worker process has loaded."),
    },
    description="The whole library as the answering process has it.",
)
_EFFECT = answer(
    members(
        Effect,
        "uses succeeded failed success cost_usd tokens last_used_at",
        success=described(or_null(NUMBER), "Of those that count, 0 to 1."),
        last_used_at=or_null(TIME),
    ),
    description="What came of the workspace's turns that used a pattern.",
)
_PATTERN = answer(
    {
        **_PATTERN_LINE,
        **members(
            Pattern,
            "use_cases intents related_patterns parameters examples common_errors name priority templates "
            "best_practices syntax extra",
        ),
        "effect": _EFFECT,
        "effect_of_all_versions": _EFFECT,
    },
    description="A pattern, whole; `extra` are keys of its file that Loom does not know.",
)
_PATTERN_MATCH = answer(
    members(
        PatternMatch,
        "id object title score confidence terms",
        id=TEXT,
        object={"const": "pattern_match"},
        title=TEXT,
        score=described(NUMBER, "How alike question and pattern are, 0 to 1."),
        confidence=described(NUMBER, "The chance that it is the right one, 0 to 1."),
        terms=described(array(TEXT), "The words that counted, the weightiest first."),
    ),
    description="A candidate for a question.",
)

_USAGE_ROW: Schema = {
    "type": "object",
    "description": "Sums over one group; `key` names it.",
    "properties": {"key": TEXT, "turns": WHOLE, "tool_calls": WHOLE, **_USAGE},
    "required": ["key", "turns", "input_tokens", "output_tokens", "cost_usd"],
}

_MEMBERS_OF_KEY = members(
    ApiKey,
    "id object workspace name prefix scopes user requests_per_minute tokens_per_minute rotated_from "
    "created_at expires_at revoked_at last_used_at",
    object={"const": "key"},
    prefix=described(TEXT, "How the secret begins."),
    rotated_from=described(or_null(TEXT), "The key that this one replaces."),
    last_used_at=described(or_null(TIME), "Up to a minute old."),
)
_KEY = answer(_MEMBERS_OF_KEY, description="An API key, without its secret.")
_MADE_KEY = answer(
    {**_MEMBERS_OF_KEY, "secret": described(TEXT, "What clients send. It is shown in this answer only.")},
    description="A new API key.",
)

_TOKEN = answer(
    {"token": described(TEXT, "It is shown in this answer only."), "expires_at": TIME},
    description="A key for a browser, for one session alone.",
)

_AMOUNTS: Schema = {"usd": NUMBER, "tokens": WHOLE, "tool_calls": WHOLE}
_SPENDING = answer(
    {
        "level": TEXT,
        "window": or_null(TEXT),
        "limit": {"type": "object", "properties": _AMOUNTS},
        "used": {"type": "object", "properties": _AMOUNTS},
        "renews_at": or_null(TIME),
    },
    description="What is used of a limit; `window` is the day or month in UTC, null for good. Calls that are under way "
    "count at the most they can cost.",
)
_WORKSPACE = answer(
    {
        "name": TEXT,
        "object": {"type": "string", "const": "workspace"},
        "budget": {"type": ["object", "null"]},
        "disabled": {"type": "boolean"},
        "retention": or_null(
            answer({"days": WHOLE}, description="After how many days without use a session is deleted.")
        ),
        "guardrails": {"type": ["object", "null"]},
        "model": or_null(TEXT),
        "provider": or_null(TEXT),
        "tools": {"type": ["object", "null"]},
        "skills": {"type": ["object", "null"]},
        "updated_at": or_null(TIME),
        "spending": array(ref("Spending")),
    },
    description="A workspace and the rules that its administrator has set.",
)

_CHANNEL = answer(
    members(Channel, "name format max_chars"),
    description="Where the answer to a turn is read.",
)
_PAIRING = answer(
    members(Pairing, "id object channel identity user created_at", object={"const": "pairing"}, created_at=TIME),
    description="Who somebody of a channel is.",
)

_AUDIT_ROW = answer(
    {
        "id": described(TEXT, "`aud_`, then digits of `seq` and of `hash`: rows of a workspace sort by it."),
        "object": {"const": "audit.row"},
        "seq": described(WHOLE, "1, 2, 3… in the chain of the workspace."),
        "at": TIME,
        "kind": {"type": "string", "enum": list(ACTIONS)},
        "actor": or_null(
            described(
                TEXT,
                "Who did it: a key (`key_…`, or `env_…` for one of LOOM_API_KEYS), `local` for this machine without a "
                "key, `retention` for what was kept long enough. Of a turn: who submitted it.",
            )
        ),
        **members(
            AuditEntry,
            "workspace user channel agent model session_id turn_id subject status reason",
            subject=or_null(described(TEXT, "The id of the key, user, call or delivery that was acted on.")),
        ),
        "tools": array(
            answer(
                {"name": TEXT, "calls": WHOLE, "outcomes": {"type": "object", "additionalProperties": WHOLE}},
                description="How often a turn called a tool, with how the calls ended.",
            )
        ),
        "decisions": array(
            answer(
                {"kind": TEXT, "name": TEXT, "outcome": {"type": ["string", "integer"]}},
                description="What was decided: of people on calls, of rules that were changed, of a key's scopes.",
            )
        ),
        "usage": or_null(
            answer(
                {"tokens": WHOLE, "cost_usd": described(or_null(NUMBER), "null: a price is not known.")},
                description="What a turn used; null for everything else.",
            )
        ),
        **members(AuditEntry, "duration_ms"),
        "prev_hash": described(TEXT, "The `hash` of the row before it; 64 zeros before the first."),
        "hash": described(TEXT, "SHA-256 of the row with `prev_hash`; docs/audit.md says of what exactly."),
    },
    description="What happened once, and who did it. Holds ids, names of tools and figures, never texts.",
)

_DELETED_USER: Schema = answer(
    {"user": TEXT, "object": {"const": "user.deleted"}, "sessions": WHOLE, "turns": WHOLE, "keys": WHOLE},
    description="How many sessions and turns were deleted and how many keys revoked.",
)

_AGENT_MESSAGE: Schema = answer(
    members(
        AgentMessage,
        "id object to from from_session_id from_turn_id kind message ref in_reply_to status reason attempts turn_id "
        "user created_at expires_at ended_at",
        object={"const": "agent_message"},
        to=described(TEXT, "The agent that it is for."),
        from_session_id=TEXT,
        message=described(TEXT, "The text; with `ref` only its beginning."),
        ref=described(or_null(TEXT), "Of the whole text, where it is stored as a large result."),
        in_reply_to=described(or_null(TEXT), "The message that it answers."),
        reason=described(or_null(TEXT), "Of a dead one: `expired` (nobody took it) or `attempts` (all turns failed)."),
        turn_id=described(or_null(TEXT), "The turn that took it last."),
        **{"from": described(TEXT, "The agent that sent it.")},
    ),
    description="A message from one agent to another. queued: nobody has it; taken: a turn that goes on has it; "
    "done: that turn is completed; dead: nobody gets it any more.",
    also=CUT,
)

_SPAN_EVENT = answer(
    members(SpanEvent, "name time attributes", time=TIME, attributes=FREE), description="A moment of it."
)
_TRACE_SPAN = answer(
    members(
        TraceSpan,
        "trace_id span_id parent_id name start_time end_time duration_ms attributes events status status_message",
        parent_id=described(or_null(TEXT), "Null of the root; a span of the client, where it sent a `traceparent`."),
        start_time=TIME,
        end_time=described(or_null(TIME), "Null while it goes on."),
        duration_ms=or_null(NUMBER),
        attributes=described(FREE, "Named as docs/tracing.md says."),
        events=array(_SPAN_EVENT),
        status={"type": "string", "enum": list(get_args(SpanStatus))},
        status_message=described(TEXT, "Why it is an error."),
    )
    | {"kind": {"type": "string", "enum": list(get_args(SpanKind))}},
    description="One part of a turn, from its beginning to its end.",
)

_QUEUE_STATS = answer(
    {
        "lanes": WHOLE,
        "queued": WHOLE,
        "running": WHOLE,
        "waiting": WHOLE,
        "oldest_queued_age_s": or_null(NUMBER),
        "oldest_running_age_s": or_null(NUMBER),
        "oldest_waiting_age_s": or_null(NUMBER),
        "oldest_waiting_for": {"type": ["string", "null"], "enum": [*get_args(WaitsFor), None]},
        "workers": WHOLE,
        "dead": WHOLE,
    },
    description="What waits, what runs and who works.",
)

_PROBLEM: Schema = {
    "type": "object",
    "description": "RFC 9457 problem details.",
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "instance": TEXT,
        "request_id": or_null(TEXT),
        "errors": array(answer({"pointer": TEXT, "detail": TEXT}, description="One flaw of the body.")),
        "reasons": array(TEXT),
    },
    "required": ["type", "title", "status", "detail", "instance"],
}

LISTS = (
    *("Session", "Turn", "Message", "Hit", "Snapshot", "Delivery", "Agent", "Tool", "UsageRow", "Error"),
    *("Key", "Pairing", "AuditRow", "PatternMatch", "TraceSpan", "Run", "AgentMessage"),
)
"""Answers that come in pages, too."""
ANSWERS: dict[str, Schema] = {
    "Turn": _TURN,
    **RUN_ANSWERS,
    **SCHEDULE_ANSWERS,
    **LEARNED_ANSWERS,
    **FACT_ANSWERS,
    **MEMORY_ANSWERS,
    **AGENT_VERSION_ANSWERS,
    "Session": _SESSION,
    "Message": _MESSAGE,
    "Recalled": answer(
        {"recalled_tokens": WHOLE}, description="What all recalled messages of the session take of its context."
    ),
    "Event": _EVENT,
    "Delivery": _DELIVERY,
    "AgentMessage": _AGENT_MESSAGE,
    "Error": _ERROR,
    "Key": _KEY,
    "MadeKey": _MADE_KEY,
    "Token": _TOKEN,
    "Channel": _CHANNEL,
    "Pairing": _PAIRING,
    "AuditRow": _AUDIT_ROW,
    "DeletedUser": _DELETED_USER,
    "TraceSpan": _TRACE_SPAN,
    "Agent": _AGENT,
    "Pattern": _PATTERN,
    "PatternList": _PATTERN_LIST,
    "PatternMatch": _PATTERN_MATCH,
    "Tool": _TOOL,
    "ToolCall": _TOOL_CALL,
    "Waiting": _WAITING,
    "Usage": answer(_USAGE, description="Tokens and cost; the cost is null where a price is not known."),
    "UsageRow": _USAGE_ROW,
    "QueueStats": _QUEUE_STATS,
    "Spending": _SPENDING,
    "Workspace": _WORKSPACE,
    "Problem": _PROBLEM,
    "Health": answer({"status": TEXT}, description="A probe's answer."),
}
"""By the names that operations answer with."""
