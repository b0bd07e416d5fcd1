"""Query and header parameters of the API, as the OpenAPI document describes them."""

from loom_worker.core.values.agent_messages import MessageStatus
from loom_worker.core.values.audit import ACTIONS
from loom_worker.core.values.facts import FactStatus
from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import PLACES
from loom_worker.core.values.turns import TurnStatus
from loom_worker.core.values.usage import GROUPS, Purpose
from web.schemas import TEXT, TIME, WHOLE, one_of

PARAMETERS: dict[str, Json] = {
    "limit": {
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "default": 50},
        "description": "Most items of a page; more than 500 counts as 500.",
    },
    "q": {
        "in": "query",
        "schema": {"type": "string", "maxLength": 4000},
        "description": "Words or a question; without any word nothing is searched and nothing found.",
    },
    "category": {
        "in": "query",
        "schema": TEXT,
        "description": "Of this category, library or folder of libraries only.",
    },
    "question": {
        "name": "q",
        "in": "query",
        "schema": {"type": "string", "maxLength": 4000},
        "description": "What a user would say; without any word nothing is found.",
    },
    "k": {
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "default": 3},
        "description": "Most candidates; more than 20 counts as 20.",
    },
    "matching_agent": {
        "name": "agent",
        "in": "query",
        "schema": TEXT,
        "description": "Only patterns that fit what this agent works on; unless given, all.",
    },
    "most_hits": {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "default": 10},
        "description": "Most hits; more than 50 counts as 50.",
    },
    "one_per": {
        "in": "query",
        "schema": {"type": "string", "enum": list(PLACES), "default": "message"},
        "description": "What takes one place of the limit: each message that matches, or all that match in one "
        "passage; then no message is in two passages.",
    },
    "from": {"in": "query", "schema": TEXT, "description": "A version or label; unless given, the version before it."},
    "after": {"in": "query", "schema": TEXT, "description": "The `next` of the page before; else 422."},
    "status": {"in": "query", "schema": one_of(TurnStatus)},
    "reason": {"in": "query", "schema": TEXT, "description": "Such as `dead`."},
    "wait": {
        "in": "query",
        "schema": WHOLE,
        "description": "Seconds to wait for the end, or until a person is asked; more than 60 counts as 60. "
        "With no slot free: answered at once.",
    },
    "starting_after": {"in": "query", "schema": WHOLE, "description": "The last event id the reader has."},
    "agent": {"in": "query", "schema": {"type": "string", "default": "default"}, "description": "An agent's name."},
    "group_by": {
        "in": "query",
        "schema": {"type": "string", "enum": list(GROUPS), "default": "workspace"},
        "description": "What to sum by; times are in UTC.",
    },
    "Last-Event-ID": {"in": "header", "schema": WHOLE, "description": "As starting_after, and before it."},
    "Idempotency-Key": {
        "in": "header",
        "schema": {"type": "string", "maxLength": 255},
        "description": "The same key, path and body give the same turn again (`Idempotency-Replayed: true`).",
    },
    "turn": {"in": "query", "schema": TEXT, "description": "Of this turn only."},
    "of_agent": {"name": "agent", "in": "query", "schema": TEXT, "description": "Of this agent only."},
    "to_agent": {"name": "agent", "in": "query", "schema": TEXT, "description": "Only messages to this agent."},
    "message_status": {"name": "status", "in": "query", "schema": one_of(MessageStatus)},
    "fact_status": {
        "name": "status",
        "in": "query",
        "schema": {**one_of(FactStatus), "default": "open"},
        "description": "Facts that hold, those that held once, or both.",
    },
    "topic": {
        "in": "query",
        "schema": {"type": "string", "maxLength": 1000},
        "description": "Only facts that share a word with it.",
    },
    "of_workflow": {"name": "workflow", "in": "query", "schema": TEXT, "description": "Of this workflow only."},
    "model": {"in": "query", "schema": TEXT, "description": "Of this model only."},
    "kind": {"in": "query", "schema": one_of(Purpose), "description": "Of calls for this purpose only."},
    "kind_of_act": {
        "name": "kind",
        "in": "query",
        "schema": {"type": "string", "enum": list(ACTIONS)},
        "description": "Of this kind only.",
    },
    "user": {"in": "query", "schema": TEXT, "description": "Of this user only."},
    "session": {"in": "query", "schema": TEXT, "description": "Of this session only."},
    "tool": {"in": "query", "schema": TEXT, "description": "Of the tool of this name only."},
    "since": {"in": "query", "schema": TIME, "description": "The first moment that counts."},
    "until": {"in": "query", "schema": TIME, "description": "The first moment that is too late."},
    "Range": {
        "in": "header",
        "schema": TEXT,
        "description": "One range, such as `bytes=0-1023`; several, or what cannot be read, give the whole.",
    },
    "If-Range": {"in": "header", "schema": TEXT, "description": "An ETag: of another version the whole is sent."},
    "If-None-Match": {"in": "header", "schema": TEXT, "description": "ETags: 304 for who has it already."},
    "Prefer": {
        "in": "header",
        "schema": TEXT,
        "description": "`wait=N`: answer 200 with the ended turn if it ends within N (at most 60) seconds.",
    },
}
