"""JSON Schemas of what the API answers, for the OpenAPI document and the tests that hold answers against it."""

from typing import get_args

from loom_worker.values.deliveries import DeliveryStatus
from loom_worker.values.events import EventType
from loom_worker.values.turns import Approval, CallStatus, CancelAction, TurnStatus
from web.request_schemas import CUT, Schema

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
FREE: Schema = {"type": "object"}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _array(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _one_of(kind: object) -> Schema:
    return {"type": "string", "enum": list(get_args(kind))}


def _answer(properties: Schema, *, description: str, also: Schema | None = None) -> Schema:
    """An object that always has all of its members, but for those in ``also``; new ones may come."""
    named = {**properties, **(also or {})}
    return {"type": "object", "description": description, "properties": named, "required": sorted(properties)}


def list_of(name: str) -> Schema:
    """The schema of a page of things."""
    return _answer(
        {"object": {"const": "list"}, "data": _array(_ref(name)), "has_more": FLAG, "next": _or_null(TEXT)},
        description=f"A page of {name}, 1 MiB at the most; pass `next` as `after` to go on.",
    )


USAGE = _answer(
    {
        "input_tokens": WHOLE,
        "output_tokens": WHOLE,
        "cache_read_tokens": WHOLE,
        "cache_write_tokens": WHOLE,
        "cost_usd": _or_null(NUMBER),
        "llm_calls": WHOLE,
    },
    description="Tokens and cost; the cost is null where a price is not known.",
)

TOOL_CALL = _answer(
    {
        "id": TEXT,
        "name": TEXT,
        "arguments": FREE,
        "status": _one_of(CallStatus),
        "duration_ms": _or_null(WHOLE),
        "content": _or_null(TEXT),
        "error_id": {**_or_null(TEXT), "description": "The whole error: GET /v1/errors/{error_id}."},
        "ref": {**_or_null(TEXT), "description": "The whole result: GET /v1/blobs/{ref}."},
        "approval": {"type": ["string", "null"], "enum": [*get_args(Approval), None]},
        "approve_by": _or_null(TIME),
    },
    description="One tool call of a turn; its content is capped.",
)

TURN = _answer(
    {
        "id": TEXT,
        "object": {"const": "turn"},
        "session_id": TEXT,
        "seq": WHOLE,
        "status": _one_of(TurnStatus),
        "reason": _or_null(TEXT),
        "position": WHOLE,
        "attempt": WHOLE,
        "input": TEXT,
        "output_text": {**_or_null(TEXT), "description": "All that the turn said, as it was streamed."},
        "tool_calls": _array(_ref("ToolCall")),
        "patterns": _array(FREE),
        "usage": _ref("Usage"),
        "error": _or_null(FREE),
        "timings": _answer(
            {"queued_ms": _or_null(WHOLE), "run_ms": _or_null(WHOLE), "first_token_ms": _or_null(WHOLE)},
            description="Milliseconds; null until known.",
        ),
        "trace_id": _or_null(TEXT),
        "metadata": FREE,
        "retry_of": _or_null(TEXT),
        "cancel": {"type": ["string", "null"], "enum": [*get_args(CancelAction), None]},
        "created_at": TIME,
        "started_at": _or_null(TIME),
        "completed_at": _or_null(TIME),
    },
    description="One user message and its answer. Final statuses: completed, failed, cancelled, incomplete.",
    also=CUT,
)

SESSION = _answer(
    {
        "id": TEXT,
        "object": {"const": "session"},
        "agent": TEXT,
        "user": _or_null(TEXT),
        "title": _or_null(TEXT),
        "status": {"type": "string", "enum": ["active", "paused", "archived"]},
        "busy": {**FLAG, "description": "A turn was begun and has not ended."},
        "queue_depth": WHOLE,
        "metadata": FREE,
        "kernel": FREE,
        "model": _or_null(TEXT),
        "tools": {"type": ["array", "null"], "items": TEXT},
        "backend": _or_null(TEXT),
        "agent_version": _or_null(TEXT),
        "budget": _or_null(FREE),
        "cumulative_usage": _ref("Usage"),
        "created_at": TIME,
        "updated_at": TIME,
    },
    description="A conversation; its turns take effect one at a time, in the order they were accepted.",
    also=CUT,
)

MESSAGE = _answer(
    {
        "id": TEXT,
        "object": {"const": "message"},
        "session_id": TEXT,
        "turn_id": TEXT,
        "role": {"type": "string", "enum": ["user", "assistant", "tool"]},
        "content": TEXT,
        "tool_calls": _array(FREE),
        "tool_results": _array(FREE),
        "usage": {"anyOf": [_ref("Usage"), {"type": "null"}]},
        "token_count": WHOLE,
        "timestamp": TIME,
    },
    description="One message of a conversation.",
    also=CUT,
)

_ROLE: Schema = {"type": "string", "enum": ["user", "assistant", "tool"]}
_EXCERPT = _answer(
    {"message_id": TEXT, "turn_id": TEXT, "role": _ROLE, "text": {"type": "string", "maxLength": 200}},
    description="What is shown of one message of a passage.",
)
HIT = _answer(
    {
        "message_id": TEXT,
        "turn_id": TEXT,
        "role": _ROLE,
        "snippet": {"type": "string", "maxLength": 200},
        "score": NUMBER,
        "passage": {
            "type": "array",
            "items": _EXCERPT,
            "maxItems": 5,
            "description": "The message and up to two on each side of it, in the order of the conversation.",
        },
    },
    description="A message that a search found; a larger score is better, within one search.",
)

_LAYER = _answer(
    {"tokens": WHOLE, "share": {**NUMBER, "minimum": 0}},
    description="What one layer takes; `share` is of the input budget, 0 to 1.",
)
_LAYER_OF_MESSAGES: Schema = {
    **_LAYER,
    "properties": {**_LAYER["properties"], "messages": WHOLE},
    "required": ["messages", *_LAYER["required"]],
}

CONTEXT = _answer(
    {
        "object": {"const": "context"},
        "layers": _answer(
            {
                "tools": _LAYER,
                "rom": _LAYER,
                "kernel": _LAYER,
                "l2": _LAYER,
                "l1": _LAYER_OF_MESSAGES,
                "recalled": _LAYER_OF_MESSAGES,
                "patterns": _LAYER,
            },
            description="In the order of a request.",
        ),
        "input_budget_tokens": WHOLE,
        "used_tokens": WHOLE,
        "model": TEXT,
        "rom_digest": TEXT,
        "agent_version": _or_null(TEXT),
        "memory_version": WHOLE,
    },
    description="What the model would be sent now, beside the next question. Tokens are the provider's, as its latest "
    "reply told them.",
)

RECALLED = _answer(
    {"recalled_tokens": WHOLE}, description="What all recalled messages of the session take of its context."
)

SNAPSHOT = _answer(
    {
        "id": TEXT,
        "object": {"const": "snapshot"},
        "session_id": TEXT,
        "snapshot_type": TEXT,
        "content": TEXT,
        "token_count": WHOLE,
        "from_message_id": _or_null(TEXT),
        "to_message_id": _or_null(TEXT),
        "created_at": TIME,
    },
    description="Summaries that left the context when they had grown too long, with the messages they speak of.",
)

EVENT = _answer(
    {"id": {"type": "integer", "minimum": 0}, "event": _one_of(EventType), "data": FREE},
    description="One server-sent event: the `id`, `event` and `data` lines, data being JSON on one line. "
    "Ids are 1, 2, 3… without gaps. Terminal events carry the whole Turn; after `turn.retrying` drop the deltas "
    "since `turn.started`, after `stream.reset` read again from 1.",
)

DELIVERY = _answer(
    {
        "id": TEXT,
        "object": {"const": "delivery"},
        "turn_id": TEXT,
        "url": TEXT,
        "status": _one_of(DeliveryStatus),
        "attempts": WHOLE,
        "last_status": _or_null(WHOLE),
        "last_error": _or_null(TEXT),
        "created_at": TIME,
        "next_attempt_at": _or_null(TIME),
        "delivered_at": _or_null(TIME),
    },
    description="A webhook delivery.",
)

ERROR = _answer(
    {
        "id": TEXT,
        "object": {"const": "error"},
        "session_id": TEXT,
        "turn_id": TEXT,
        "tool_name": TEXT,
        "timestamp": TIME,
        "short_summary": {"type": "string", "maxLength": 100},
        "raw_error": {
            "type": "object",
            "properties": {"message": TEXT, "code": TEXT, "detail": TEXT},
            "required": ["message"],
        },
    },
    description="A failed tool call: the line that the model read, and all that is kept. Secrets are taken out.",
    also=CUT,
)

AGENT = _answer(
    {
        "name": TEXT,
        "object": {"const": "agent"},
        "version": TEXT,
        "description": TEXT,
        "provider": _or_null(TEXT),
        "model": _or_null(TEXT),
        "tools": {"type": ["array", "null"], "items": TEXT, "description": "null: every tool there is."},
        "max_llm_calls": _or_null(WHOLE),
        "max_tool_calls": _or_null(WHOLE),
        "timeout_s": _or_null(NUMBER),
        "patterns_enabled": FLAG,
        "unknown_keys": _array(TEXT),
    },
    description="Who answers. Agents come from YAML files; null means the setting of the process holds.",
)

TOOL = _answer(
    {
        "name": TEXT,
        "object": {"const": "tool"},
        "description": TEXT,
        "input_schema": FREE,
        "is_read_only": FLAG,
        "is_idempotent": FLAG,
        "needs_approval": {**FLAG, "description": "A call by this agent waits for a person."},
        "timeout_s": NUMBER,
    },
    description="A tool, with the JSON Schema of its arguments.",
)

_PATTERN_LINE: Schema = {
    "id": TEXT,
    "object": {"const": "pattern"},
    "title": TEXT,
    "description": TEXT,
    "category": TEXT,
    "difficulty": TEXT,
    "backend_type": TEXT,
    "tags": _array(TEXT),
    "source": {"type": "string", "description": "File and line, within the library's folder."},
    "version": {"type": "string", "description": "Another one as soon as the pattern says something else."},
}

PATTERN_LIST = _answer(
    {
        "object": {"const": "list"},
        "data": _array(_answer(_PATTERN_LINE, description="A pattern.")),
        "has_more": {"const": False},
        "next": {"type": "null"},
        "errors": {**_array(TEXT), "description": "What of the library's files could not be read, and why."},
        "loaded_at": TIME,
        "processes": {**_array(FREE), "description": "What each worker process has loaded."},
    },
    description="The whole library as the answering process has it.",
)

_EFFECT = _answer(
    {
        "uses": WHOLE,
        "succeeded": WHOLE,
        "failed": WHOLE,
        "success": {**_or_null(NUMBER), "description": "Of those that count, 0 to 1."},
        "cost_usd": NUMBER,
        "tokens": WHOLE,
        "last_used_at": _or_null(TIME),
    },
    description="What came of the workspace's turns that used a pattern.",
)

PATTERN = _answer(
    {
        **_PATTERN_LINE,
        **{name: _array(TEXT) for name in ("use_cases", "intents", "related_patterns")},
        **{name: _array(FREE) for name in ("parameters", "examples", "common_errors")},
        "name": TEXT,
        "priority": WHOLE,
        "templates": FREE,
        "best_practices": TEXT,
        "syntax": TEXT,
        "extra": FREE,
        "effect": _EFFECT,
        "effect_of_all_versions": _EFFECT,
        "boost": {"type": "number", "description": "What that makes of its place among candidates; 1: nothing."},
        "boost_why": TEXT,
    },
    description="A pattern, whole; `extra` are keys of its file that Loom does not know.",
)

PATTERN_MATCH = _answer(
    {
        "id": TEXT,
        "object": {"const": "pattern_match"},
        "title": TEXT,
        "score": {"type": "number", "description": "How alike question and pattern are, 0 to 1."},
        "confidence": {"type": "number", "description": "The chance that it is the right one, 0 to 1."},
        "terms": {**_array(TEXT), "description": "The words that counted, the weightiest first."},
        "boost": {"type": "number", "description": "What earlier turns make of its place; 1: nothing."},
    },
    description="A candidate for a question.",
)

USAGE_ROW: Schema = {
    "type": "object",
    "description": "Sums over one group; `key` names it.",
    "properties": {"key": TEXT, "turns": WHOLE, **USAGE["properties"]},
    "required": ["key", "turns", "input_tokens", "output_tokens", "cost_usd"],
}

QUEUE_STATS = _answer(
    {
        "lanes": WHOLE,
        "queued": WHOLE,
        "running": WHOLE,
        "waiting": WHOLE,
        "oldest_queued_age_s": _or_null(NUMBER),
        "workers": WHOLE,
        "dead": WHOLE,
    },
    description="What waits, what runs and who works.",
)

PROBLEM: Schema = {
    "type": "object",
    "description": "RFC 9457 problem details.",
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "instance": TEXT,
        "request_id": _or_null(TEXT),
        "errors": _array(_answer({"pointer": TEXT, "detail": TEXT}, description="One flaw of the body.")),
        "reasons": _array(TEXT),
    },
    "required": ["type", "title", "status", "detail", "instance"],
}

HEALTH = _answer({"status": TEXT}, description="A probe's answer.")
