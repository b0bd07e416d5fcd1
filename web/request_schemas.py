"""JSON Schemas of the request bodies: one source for the check and for the OpenAPI document."""

from typing import get_args

from loom_worker.core.values.agents import PROVIDERS
from loom_worker.core.values.api_keys import MOST_TOKEN_S, SCOPES, USUAL_TOKEN_S
from loom_worker.core.values.channels import LEAST_CHARS, MOST_CHARS, ChannelFormat
from loom_worker.core.values.decisions import ApprovalVerdict
from loom_worker.core.values.guardrails import ACTIONS, OTHER_WORDS, STAGES, Stage, kinds_at
from loom_worker.core.values.tenants import USER_ID
from loom_worker.core.values.turns import CancelAction
from web.schemas import TIME, Schema, or_null

NOT_BLANK = r"\S"
IDENTIFIER = r"^[A-Za-z0-9._-]{1,128}$(?!\n)"
"""Python's ``$`` also matches before a last line break; what follows it says no, and means nothing elsewhere."""
SESSION_ID = r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}$(?!\n)"
"""``.`` and ``..`` are steps of a path: most clients take them out of it, and would never reach such a session."""
NAME: Schema = {"type": "string", "pattern": IDENTIFIER}
VERSIONED = r"^[A-Za-z0-9._-]{1,128}@[A-Za-z0-9._+-]{1,64}$(?!\n)"
MOST_RECALLED = 200
"""Messages of one request to recall them; a person seldom means more, and each is looked up."""
MAX_DEADLINE_S = 86_400
MOST_USD, MOST_TOKENS = 1_000_000, 1_000_000_000_000
"""Of a budget; what is larger is unlimited for all practical purposes, and its sums would not be exact."""
MOST_REQUESTS, MOST_KEY_TOKENS = 60_000, 1_000_000_000
"""Of a key in a minute. The time of each of the latest requests is kept."""
MAX_GRACE_S = 30 * 86_400
DOUBLE_TEXTING = ("enqueue", "reject", "interrupt", "rollback")


def object_of(properties: Schema, *, required: tuple[str, ...] = (), description: str) -> Schema:
    """A body with these members and no others."""
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _text(longest: int, *, shortest: int = 0) -> Schema:
    return {"type": "string", "maxLength": longest} | ({"minLength": shortest} if shortest else {})


METADATA: Schema = {"type": "object", "description": "Yours to fill; at most 16 KiB of JSON."}
_KERNEL: Schema = {"type": "object", "description": "User identity, goals, preferences; at most 64 KiB of JSON."}
_AMOUNTS: Schema = {
    "usd": {"type": "number", "minimum": 0, "maximum": MOST_USD},
    "tokens": {"type": "integer", "minimum": 0, "maximum": MOST_TOKENS},
    "tool_calls": {"type": "integer", "minimum": 0, "maximum": MOST_TOKENS},
}
PLAIN_BUDGET: Schema = {
    "type": "object",
    "description": "What may be spent; an absent member is unlimited.",
    "properties": _AMOUNTS,
    "additionalProperties": False,
}
_PERIOD: Schema = {"type": "object", "properties": _AMOUNTS, "additionalProperties": False}
_BUDGET_OVER_TIME: Schema = {
    "type": "object",
    "description": "What may be spent for good, and under `day` and `month` (UTC) in each; an absent member is "
    "unlimited.",
    "properties": {**_AMOUNTS, "day": _PERIOD, "month": _PERIOD},
    "additionalProperties": False,
}
WEBHOOK: Schema = {
    "type": ["string", "object", "null"],
    "description": "Where to report the end of the turn: a URL, or a URL with its own secret.",
    "maxLength": 2048,
    "properties": {"url": _text(2048), "secret": or_null(_text(256))},
    "required": ["url"],
    "additionalProperties": False,
}

DEADLINE: Schema = {
    "type": ["number", "null"],
    "exclusiveMinimum": 0,
    "maximum": MAX_DEADLINE_S,
    "description": "Seconds from acceptance after which it is given up.",
}
USER: Schema = {"type": "string", "pattern": USER_ID}
_CHANNEL: Schema = {
    "type": "object",
    "description": "Where the answer is read: the model is told, and `output_parts` holds the answer accordingly.",
    "properties": {
        "name": NAME,
        "format": {"type": "string", "enum": list(get_args(ChannelFormat)), "default": "markdown"},
        "max_chars": {
            "type": ["integer", "null"],
            "minimum": LEAST_CHARS,
            "maximum": MOST_CHARS,
            "description": "Unicode characters of one message; a longer answer is split. null: any number.",
        },
    },
    "required": ["name"],
    "additionalProperties": False,
}

_GLOBS: Schema = {"type": "array", "items": _text(128, shortest=1), "maxItems": 256}
_NAMES: Schema = {
    "type": "object",
    "properties": {
        "allow": {**_GLOBS, "description": "Names, with `*` and `?`; absent: all that are not denied."},
        "deny": {**_GLOBS, "description": "Counts more than `allow`."},
    },
    "additionalProperties": False,
}
_ACTION: Schema = {"type": "string", "enum": list(ACTIONS)}


def _stage(stage: Stage) -> Schema:
    found = {"type": "string", "enum": [*kinds_at(stage), *OTHER_WORDS]}
    return {
        "type": ["object", "array"],
        "properties": dict.fromkeys(kinds_at(stage), _ACTION),
        "additionalProperties": False,
        "items": {
            "type": "object",
            "properties": {"find": found, "action": _ACTION},
            "required": ["find", "action"],
            "additionalProperties": False,
        },
    }


_GUARDRAILS: Schema = {
    "type": "object",
    "description": "What texts are searched for, and what becomes of what is found: at each stage actions by kind, or "
    "a list of rules. With an agent's own guardrails the stricter action holds.",
    "properties": {stage: _stage(stage) for stage in STAGES},
    "additionalProperties": False,
}

NEW_TURN = object_of(
    {
        "input": {
            "type": "string",
            "pattern": NOT_BLANK,
            "description": "What the user says; more than blanks and invisible characters.",
        },
        "agent": {
            **or_null(NAME),
            "description": "Who answers. A session keeps the agent of its first turn: another one is refused (422).",
        },
        "double_texting": {
            "type": "string",
            "enum": list(DOUBLE_TEXTING),
            "default": "enqueue",
            "description": "When the session is busy: wait in its lane, be refused (409), or cancel the turn that runs "
            "(see CancelTurn) and wait behind those that are queued.",
        },
        "webhook": WEBHOOK,
        "deadline_s": DEADLINE,
        "max_attempts": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": 10,
            "description": "Deaths of the worker that runs it before the turn is given up.",
        },
        "metadata": METADATA,
        "budget": or_null(PLAIN_BUDGET),
        "user": {
            **or_null(USER),
            "description": "Who asks, as the channel names the user. A pairing of the channel says which user of the "
            "workspace that is; without one it is this name. A session keeps the user of its first turn.",
        },
        "channel": or_null(_CHANNEL),
        "said_at": {
            **or_null(TIME),
            "description": "When it was said, for a chat that is moved in from elsewhere: the date of the turn's "
            "messages, the reply included. The order stays that of the turns. null: now.",
        },
    },
    required=("input",),
    description="A turn to be run.",
)

NEW_SESSION = object_of(
    {
        "id": or_null({"type": "string", "pattern": SESSION_ID}),
        "agent": NAME,
        "user": or_null(USER),
        "title": or_null(_text(500)),
        "metadata": METADATA,
        "kernel": _KERNEL,
        "budget": or_null(_BUDGET_OVER_TIME),
        "model": or_null(_text(128, shortest=1)),
    },
    description="A session to be made; every member is optional.",
)

SESSION_PATCH = object_of(
    {
        "title": or_null(_text(500)),
        "metadata": METADATA,
        "kernel": _KERNEL,
        "status": {"type": "string", "enum": ["active", "paused", "archived"]},
        "model": or_null(_text(128, shortest=1)),
        "budget": or_null(_BUDGET_OVER_TIME),
        "tools": {
            "type": ["array", "null"],
            "items": _text(128),
            "maxItems": 128,
            "uniqueItems": True,
            "description": "Names, of those the agent may use (GET /v1/tools?agent=…); null: all of them.",
        },
        "backend": {
            **or_null(_text(1024)),
            "description": "A database, of those in the agent's `backend.scope.databases`; null: the agent's own.",
        },
        "agent": {
            "type": "string",
            "pattern": VERSIONED,
            "description": "The session's own agent in another version: `name@latest`, `name@VERSION`, "
            "`name@production` or `name@canary`. The system text is made anew. A version that no new session "
            "gets can only be chosen with the scope admin.",
        },
    },
    description="What is to change: absent members stay as they are, null clears.",
)

_RETENTION_DAYS: Schema = {"minimum": 1, "maximum": 3650}
WORKSPACE_PATCH = object_of(
    {
        "budget": {**or_null(_BUDGET_OVER_TIME), "description": "For all sessions of the workspace together."},
        "disabled": {
            "type": "boolean",
            "description": "true: what runs is interrupted, what is queued waits, and no turn is accepted (403).",
        },
        "retention": {
            "type": ["object", "integer", "null"],
            **_RETENTION_DAYS,
            "properties": {"days": {"type": "integer", **_RETENTION_DAYS}},
            "required": ["days"],
            "additionalProperties": False,
            "description": "Sessions that nobody used for so many days are deleted; a number alone means days, too. "
            "null: as LOOM_CONVERSATION_DAYS says. The shorter of both counts.",
        },
        "guardrails": or_null(_GUARDRAILS),
        "model": {
            **or_null(_text(128, shortest=1)),
            "description": "Answers instead of the agents' own models, unless a session has chosen one.",
        },
        "provider": {
            "type": ["string", "null"],
            "enum": [*PROVIDERS, None],
            "description": "Serves the models instead of the agents' own providers.",
        },
        "tools": {**or_null(_NAMES), "description": "Which of its tools an agent may call in this workspace."},
        "skills": {**or_null(_NAMES), "description": "Which of the workspace's skills agents have."},
    },
    description="Rules that are to change: absent members stay as they are, null clears.",
)

RECALL = object_of(
    {
        "message_ids": {
            "type": "array",
            "items": NAME,
            "minItems": 1,
            "maxItems": MOST_RECALLED,
            "description": "Messages of this session, such as a search finds.",
        },
    },
    required=("message_ids",),
    description="Messages that are added to the session's next questions, until they are cleared.",
)

CANCEL_TURN = object_of(
    {
        "action": {
            "type": "string",
            "enum": list(get_args(CancelAction)),
            "default": "interrupt",
            "description": "interrupt: what was said stays. rollback: as if the turn never ran. finish: one last model "
            "call without tools, then the turn is completed.",
        },
    },
    description="How to end a turn; an empty object or no body means `interrupt`.",
)

DECISION = object_of(
    {
        "decision": {
            "type": "string",
            "enum": list(get_args(ApprovalVerdict)),
            "description": "approve: the call runs as the model asked. edit: it runs with `arguments`. reject: the "
            "model is told, with `reason`, that it may not run.",
        },
        "arguments": {
            "type": ["object", "null"],
            "description": "With `edit`: all arguments, as the tool's schema has them.",
        },
        "reason": or_null(_text(1000)),
    },
    required=("decision",),
    description="What a person says to a tool call that waits for it.",
)

_SCOPES: Schema = {
    "type": "array",
    "items": {"type": "string", "enum": list(SCOPES)},
    "minItems": 1,
    "uniqueItems": True,
    "default": ["chat"],
    "description": "read: GET. chat: also what changes sessions and turns. admin: everything, keys included.",
}

NEW_KEY = object_of(
    {
        "name": {**_text(128), "pattern": NOT_BLANK, "description": "For people, such as what the key is for."},
        "scopes": _SCOPES,
        "user": {
            **or_null(USER),
            "description": "Whom the key acts for: it reaches this user's sessions alone, and the sessions that it "
            "creates are the user's. null: the whole workspace.",
        },
        "expires_at": {**or_null(TIME), "description": "When the key ends; null: never."},
        "requests_per_minute": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": MOST_REQUESTS,
            "description": "In any 60 seconds; null: LOOM_KEY_REQUESTS_PER_MINUTE.",
        },
        "tokens_per_minute": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": MOST_KEY_TOKENS,
            "description": "Of the key's turns in any 60 seconds, after which no turn is accepted; null: "
            "LOOM_KEY_TOKENS_PER_MINUTE.",
        },
    },
    required=("name",),
    description="A key to be made.",
)

ROTATE_KEY = object_of(
    {
        "grace_s": {
            "type": "integer",
            "minimum": 0,
            "maximum": MAX_GRACE_S,
            "default": 0,
            "description": "The old key works this many seconds longer.",
        },
    },
    description="How to replace a key; an empty object or no body ends the old one at once.",
)

NEW_TOKEN = object_of(
    {
        "ttl_s": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_TOKEN_S,
            "default": USUAL_TOKEN_S,
            "description": "Seconds until the token ends.",
        },
    },
    description="How long a token lasts; an empty object or no body is the default.",
)

NEW_PAIRING = object_of(
    {
        "channel": NAME,
        "identity": {**USER, "description": "As the channel names the person: what turns send as `user`."},
        "user": {**USER, "description": "The user of the workspace who that is."},
    },
    required=("channel", "identity", "user"),
    description="Who somebody of a channel is.",
)

EMPTY = object_of({}, description="No members: an empty object, or no body at all.")
