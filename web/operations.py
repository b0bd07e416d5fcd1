"""What the API can do: a table of operations and their parameters, as the OpenAPI document lists them."""

from dataclasses import dataclass

from loom_worker.core.values.json import Json
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
    "model": {"in": "query", "schema": TEXT, "description": "Of this model only."},
    "kind": {"in": "query", "schema": one_of(Purpose), "description": "Of calls for this purpose only."},
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


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """One method of one path."""

    method: str
    path: str
    summary: str
    tag: str
    answers: dict[int, str | None]
    """Status to the name of a schema; None: no JSON body."""
    problems: tuple[int, ...] = ()
    """Statuses with a Problem, in addition to those every operation has."""
    body: str | None = None
    parameters: tuple[str, ...] = ()
    media_type: str = "application/json"
    """Of the answers that have a body."""


_PAGE = ("limit", "after")
_TURN_FILTER = ("status", "reason", *_PAGE)

OPERATIONS: tuple[ApiOperation, ...] = (
    ApiOperation(
        "POST", "/v1/sessions", "Make a session", "sessions", {201: "Session"}, (409, 413, 415, 422), "NewSession"
    ),
    ApiOperation("GET", "/v1/sessions", "List sessions", "sessions", {200: "SessionList"}, parameters=_PAGE),
    ApiOperation("GET", "/v1/sessions/{session_id}", "Look at a session", "sessions", {200: "Session"}, (404,)),
    ApiOperation(
        "PATCH",
        "/v1/sessions/{session_id}",
        "Change a session; paused ones queue without running, archived ones refuse turns",
        "sessions",
        {200: "Session"},
        (404, 409, 413, 415, 422),
        "SessionPatch",
    ),
    ApiOperation(
        "DELETE", "/v1/sessions/{session_id}", "Delete a session and all in it", "sessions", {204: None}, (404,)
    ),
    ApiOperation(
        "GET",
        "/v1/sessions/{session_id}/messages",
        "List a session's messages, oldest first",
        "sessions",
        {200: "MessageList"},
        (404,),
        parameters=_PAGE,
    ),
    ApiOperation(
        "GET",
        "/v1/sessions/{session_id}/messages/{message_id}",
        "Look at one message, whole",
        "sessions",
        {200: "Message"},
        (404,),
    ),
    ApiOperation(
        "GET",
        "/v1/sessions/{session_id}/search",
        "Find messages of a session, the best first",
        "sessions",
        {200: "HitList"},
        (404,),
        None,
        ("q", "most_hits"),
    ),
    ApiOperation(
        "GET",
        "/v1/sessions/{session_id}/context",
        "Look at what the model would be sent now, layer by layer",
        "memory",
        {200: "Context"},
        (404,),
    ),
    ApiOperation(
        "POST",
        "/v1/sessions/{session_id}/recalled",
        "Put messages back into the context, with the next questions",
        "memory",
        {200: "Recalled"},
        (404, 413, 415, 422),
        "Recall",
    ),
    ApiOperation(
        "DELETE",
        "/v1/sessions/{session_id}/recalled",
        "Take all recalled messages out of the context again",
        "memory",
        {200: "Recalled"},
        (404,),
    ),
    ApiOperation(
        "GET",
        "/v1/sessions/{session_id}/snapshots",
        "List former summaries of a session, the newest first",
        "memory",
        {200: "SnapshotList"},
        (404,),
        parameters=_PAGE,
    ),
    ApiOperation(
        "POST",
        "/v1/sessions/{session_id}/turns",
        "Submit a turn; the session is made if it is new",
        "turns",
        {202: "Turn", 200: "Turn"},
        (404, 409, 413, 415, 422, 429),
        "NewTurn",
        ("Idempotency-Key", "Prefer"),
    ),
    ApiOperation(
        "GET",
        "/v1/sessions/{session_id}/turns",
        "List a session's turns",
        "turns",
        {200: "TurnList"},
        (404,),
        parameters=_TURN_FILTER,
    ),
    ApiOperation("GET", "/v1/turns", "List turns", "turns", {200: "TurnList"}, parameters=_TURN_FILTER),
    ApiOperation(
        "GET",
        "/v1/turns/{turn_id}",
        "Look at a turn, or wait for its end",
        "turns",
        {200: "Turn"},
        (404,),
        None,
        ("wait",),
    ),
    ApiOperation(
        "GET",
        "/v1/turns/{turn_id}/events",
        "Stream a turn's events, while it runs and after",
        "turns",
        {200: "Event"},
        (404,),
        None,
        ("Last-Event-ID", "starting_after"),
        "text/event-stream",
    ),
    ApiOperation(
        "POST",
        "/v1/turns/{turn_id}/cancel",
        "Ask a turn to end; one that has ended is answered as it is",
        "turns",
        {202: "Turn"},
        (404, 413, 415, 422),
        "CancelTurn",
    ),
    ApiOperation(
        "POST",
        "/v1/turns/{turn_id}/retry",
        "Run a failed turn's question again, as a new turn at the tail of its lane",
        "turns",
        {202: "Turn", 200: "Turn"},
        (404, 409, 413, 415, 422, 429),
        "Empty",
        ("Idempotency-Key", "Prefer"),
    ),
    ApiOperation(
        "POST",
        "/v1/turns/{turn_id}/approvals/{call_id}",
        "Decide on a tool call that waits for a person",
        "turns",
        {200: "Turn"},
        (404, 409, 413, 415, 422),
        "Decision",
    ),
    ApiOperation(
        "GET",
        "/v1/errors",
        "List errors of tools, the newest first",
        "results",
        {200: "ErrorList"},
        parameters=("session", "tool", "since", "until", *_PAGE),
    ),
    ApiOperation("GET", "/v1/errors/{error_id}", "Look at a tool's whole error", "results", {200: "Error"}, (404,)),
    ApiOperation(
        "GET",
        "/v1/blobs/{ref}",
        "Download a tool's large result, whole or a range of it, in the media type the tool gave it",
        "results",
        {200: None, 206: None, 304: None},
        (404, 416),
        None,
        ("Range", "If-Range", "If-None-Match"),
        "*/*",
    ),
    ApiOperation("GET", "/v1/agents", "List agents", "agents", {200: "AgentList"}, (422,), parameters=_PAGE),
    ApiOperation("GET", "/v1/agents/{name}", "Look at an agent", "agents", {200: "Agent"}, (404,)),
    ApiOperation(
        "GET",
        "/v1/tools",
        "List the tools of an agent",
        "agents",
        {200: "ToolList"},
        (422,),
        parameters=("agent", *_PAGE),
    ),
    ApiOperation(
        "GET",
        "/v1/patterns",
        "List the patterns, and what of their files is in error",
        "patterns",
        {200: "PatternList"},
        (422,),
        parameters=("category", *_PAGE),
    ),
    ApiOperation(
        "GET",
        "/v1/patterns/match",
        "Find the patterns that fit a question, and why",
        "patterns",
        {200: "PatternMatchList"},
        (422,),
        parameters=("question", "k", "matching_agent"),
    ),
    ApiOperation(
        "GET",
        "/v1/patterns/{pattern_id}",
        "Look at a pattern, and at what came of it",
        "patterns",
        {200: "Pattern"},
        (404,),
    ),
    ApiOperation(
        "GET",
        "/v1/usage",
        "Sum tokens and cost",
        "operation",
        {200: "UsageRowList"},
        (422,),
        parameters=("group_by", "turn", "session", "of_agent", "model", "kind", "since", "until", *_PAGE),
    ),
    ApiOperation(
        "GET",
        "/v1/workspaces/{workspace}",
        "Look at your workspace, and at what is used of its budget",
        "operation",
        {200: "Workspace"},
        (404,),
    ),
    ApiOperation(
        "PATCH",
        "/v1/workspaces/{workspace}",
        "Change the rules of your workspace",
        "operation",
        {200: "Workspace"},
        (404, 413, 415, 422),
        "WorkspacePatch",
    ),
    ApiOperation("GET", "/v1/queue/stats", "Count what waits and runs", "operation", {200: "QueueStats"}),
    ApiOperation(
        "GET", "/v1/deliveries", "List webhook deliveries", "operation", {200: "DeliveryList"}, parameters=_PAGE
    ),
    ApiOperation(
        "POST",
        "/v1/deliveries/{delivery_id}/replay",
        "Send a webhook delivery again",
        "operation",
        {202: "Delivery"},
        (404, 409, 413, 415, 422),
        "Empty",
    ),
    ApiOperation("GET", "/healthz", "The process is alive", "probes", {200: "Health"}),
    ApiOperation(
        "GET", "/readyz", "Database, Redis and a worker that takes turns are there", "probes", {200: "Health"}
    ),
    ApiOperation(
        "GET", "/metrics", "Figures for Prometheus", "probes", {200: None}, (401, 403, 503), media_type="text/plain"
    ),
    ApiOperation("GET", "/openapi.json", "This document", "pages", {200: None}),
    ApiOperation("GET", "/docs", "This document for people", "pages", {200: None}, media_type="text/html"),
    ApiOperation("GET", "/", "A page to ask and watch", "pages", {200: None}, media_type="text/html"),
)
