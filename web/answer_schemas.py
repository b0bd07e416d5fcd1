"""JSON Schemas of what the API answers, for the OpenAPI document and the tests that hold answers against it."""

from typing import get_args

from loom_worker.core.values.notifications import DeliveryStatus, EventType
from loom_worker.core.values.turns import WaitsFor
from web.request_schemas import CUT, Schema
from web.schema_parts import FLAG, FREE, NUMBER, TEXT, TIME, WHOLE, answer, array, one_of, or_null, ref
from web.turn_schemas import USAGE

SESSION = answer(
    {
        "id": TEXT,
        "object": {"const": "session"},
        "agent": TEXT,
        "user": or_null(TEXT),
        "title": or_null(TEXT),
        "status": {"type": "string", "enum": ["active", "paused", "archived"]},
        "busy": {**FLAG, "description": "A turn was begun and has not ended."},
        "queue_depth": WHOLE,
        "metadata": FREE,
        "kernel": FREE,
        "model": or_null(TEXT),
        "tools": {"type": ["array", "null"], "items": TEXT},
        "backend": or_null(TEXT),
        "agent_version": or_null(TEXT),
        "budget": or_null(FREE),
        "cumulative_usage": ref("Usage"),
        "created_at": TIME,
        "updated_at": TIME,
    },
    description="A conversation; its turns take effect one at a time, in the order they were accepted.",
    also=CUT,
)

MESSAGE = answer(
    {
        "id": TEXT,
        "object": {"const": "message"},
        "session_id": TEXT,
        "turn_id": TEXT,
        "role": {"type": "string", "enum": ["user", "assistant", "tool"]},
        "content": TEXT,
        "tool_calls": array(FREE),
        "tool_results": array(FREE),
        "usage": {"anyOf": [ref("Usage"), {"type": "null"}]},
        "token_count": WHOLE,
        "timestamp": TIME,
    },
    description="One message of a conversation.",
    also=CUT,
)

_ROLE: Schema = {"type": "string", "enum": ["user", "assistant", "tool"]}
_EXCERPT = answer(
    {"message_id": TEXT, "turn_id": TEXT, "role": _ROLE, "text": {"type": "string", "maxLength": 200}},
    description="What is shown of one message of a passage.",
)
HIT = answer(
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

_LAYER = answer(
    {"tokens": WHOLE, "share": {**NUMBER, "minimum": 0}},
    description="What one layer takes; `share` is of the input budget, 0 to 1.",
)
_LAYER_OF_MESSAGES: Schema = {
    **_LAYER,
    "properties": {**_LAYER["properties"], "messages": WHOLE},
    "required": ["messages", *_LAYER["required"]],
}

CONTEXT = answer(
    {
        "object": {"const": "context"},
        "layers": answer(
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
        "agent_version": or_null(TEXT),
        "memory_version": WHOLE,
    },
    description="What the model would be sent now, beside the next question. Tokens are the provider's, as its latest "
    "reply told them.",
)

RECALLED = answer(
    {"recalled_tokens": WHOLE}, description="What all recalled messages of the session take of its context."
)

SNAPSHOT = answer(
    {
        "id": TEXT,
        "object": {"const": "snapshot"},
        "session_id": TEXT,
        "snapshot_type": TEXT,
        "content": TEXT,
        "token_count": WHOLE,
        "from_message_id": or_null(TEXT),
        "to_message_id": or_null(TEXT),
        "created_at": TIME,
    },
    description="Summaries that left the context when they had grown too long, with the messages they speak of.",
)

EVENT = answer(
    {"id": {"type": "integer", "minimum": 0}, "event": one_of(EventType), "data": FREE},
    description="One server-sent event: the `id`, `event` and `data` lines, data being JSON on one line. "
    "Ids are 1, 2, 3… without gaps. Terminal events carry the whole Turn; after `turn.retrying` drop the deltas "
    "since `turn.started`, after `stream.reset` read again from 1.",
)

DELIVERY = answer(
    {
        "id": TEXT,
        "object": {"const": "delivery"},
        "turn_id": TEXT,
        "url": TEXT,
        "status": one_of(DeliveryStatus),
        "attempts": WHOLE,
        "last_status": or_null(WHOLE),
        "last_error": or_null(TEXT),
        "created_at": TIME,
        "next_attempt_at": or_null(TIME),
        "delivered_at": or_null(TIME),
    },
    description="A webhook delivery.",
)

ERROR = answer(
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

AGENT = answer(
    {
        "name": TEXT,
        "object": {"const": "agent"},
        "version": TEXT,
        "description": TEXT,
        "provider": or_null(TEXT),
        "model": or_null(TEXT),
        "tools": {"type": ["array", "null"], "items": TEXT, "description": "null: every tool there is."},
        "max_llm_calls": or_null(WHOLE),
        "max_tool_calls": or_null(WHOLE),
        "timeout_s": or_null(NUMBER),
        "patterns_enabled": FLAG,
        "unknown_keys": array(TEXT),
    },
    description="Who answers. Agents come from YAML files; null means the setting of the process holds.",
)

TOOL = answer(
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
    "tags": array(TEXT),
    "source": {"type": "string", "description": "File and line, within the library's folder."},
    "version": {"type": "string", "description": "Another one as soon as the pattern says something else."},
}

PATTERN_LIST = answer(
    {
        "object": {"const": "list"},
        "data": array(answer(_PATTERN_LINE, description="A pattern.")),
        "has_more": {"const": False},
        "next": {"type": "null"},
        "errors": {**array(TEXT), "description": "What of the library's files could not be read, and why."},
        "loaded_at": TIME,
        "processes": {**array(FREE), "description": "What each worker process has loaded."},
    },
    description="The whole library as the answering process has it.",
)

_EFFECT = answer(
    {
        "uses": WHOLE,
        "succeeded": WHOLE,
        "failed": WHOLE,
        "success": {**or_null(NUMBER), "description": "Of those that count, 0 to 1."},
        "cost_usd": NUMBER,
        "tokens": WHOLE,
        "last_used_at": or_null(TIME),
    },
    description="What came of the workspace's turns that used a pattern.",
)

PATTERN = answer(
    {
        **_PATTERN_LINE,
        **{name: array(TEXT) for name in ("use_cases", "intents", "related_patterns")},
        **{name: array(FREE) for name in ("parameters", "examples", "common_errors")},
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

PATTERN_MATCH = answer(
    {
        "id": TEXT,
        "object": {"const": "pattern_match"},
        "title": TEXT,
        "score": {"type": "number", "description": "How alike question and pattern are, 0 to 1."},
        "confidence": {"type": "number", "description": "The chance that it is the right one, 0 to 1."},
        "terms": {**array(TEXT), "description": "The words that counted, the weightiest first."},
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

QUEUE_STATS = answer(
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

PROBLEM: Schema = {
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

HEALTH = answer({"status": TEXT}, description="A probe's answer.")
