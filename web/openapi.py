"""The OpenAPI 3.1 document: a table of operations and what it says in full. A test holds it against the routes."""

import re
from dataclasses import dataclass
from http import HTTPStatus

from loom_worker.values.json import Json
from web import answer_schemas, request_schemas
from web.request_schemas import Schema

VERSION = "1.0.0"
"""Of the contract, not of the package."""
LISTS = ("Session", "Turn", "Message", "Hit", "Snapshot", "Delivery", "Agent", "Tool", "UsageRow")

SCHEMAS: dict[str, Schema] = {
    "Turn": answer_schemas.TURN,
    "Session": answer_schemas.SESSION,
    "Message": answer_schemas.MESSAGE,
    "Hit": answer_schemas.HIT,
    "Context": answer_schemas.CONTEXT,
    "Recalled": answer_schemas.RECALLED,
    "Snapshot": answer_schemas.SNAPSHOT,
    "Event": answer_schemas.EVENT,
    "Delivery": answer_schemas.DELIVERY,
    "Agent": answer_schemas.AGENT,
    "Tool": answer_schemas.TOOL,
    "ToolCall": answer_schemas.TOOL_CALL,
    "Usage": answer_schemas.USAGE,
    "UsageRow": answer_schemas.USAGE_ROW,
    "QueueStats": answer_schemas.QUEUE_STATS,
    "Problem": answer_schemas.PROBLEM,
    "Health": answer_schemas.HEALTH,
    "NewTurn": request_schemas.NEW_TURN,
    "NewSession": request_schemas.NEW_SESSION,
    "SessionPatch": request_schemas.SESSION_PATCH,
    "Recall": request_schemas.RECALL,
    "CancelTurn": request_schemas.CANCEL_TURN,
    "Empty": request_schemas.EMPTY,
    **{f"{name}List": answer_schemas.list_of(name) for name in LISTS},
}

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}

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
    "most_hits": {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "default": 10},
        "description": "Most hits; more than 50 counts as 50.",
    },
    "after": {"in": "query", "schema": _TEXT, "description": "The `next` of the page before."},
    "status": {"in": "query", "schema": answer_schemas.TURN["properties"]["status"]},
    "reason": {"in": "query", "schema": _TEXT, "description": "Such as `dead`."},
    "wait": {
        "in": "query",
        "schema": _COUNT,
        "description": "Seconds to wait for the end; more than 60 counts as 60. With no slot free: answered at once.",
    },
    "starting_after": {"in": "query", "schema": _COUNT, "description": "The last event id the reader has."},
    "agent": {"in": "query", "schema": {"type": "string", "default": "default"}, "description": "An agent's name."},
    "group_by": {
        "in": "query",
        "schema": {"type": "string", "enum": ["session", "agent", "model", "workspace", "day"], "default": "workspace"},
    },
    "Last-Event-ID": {"in": "header", "schema": _COUNT, "description": "As starting_after, and before it."},
    "Idempotency-Key": {
        "in": "header",
        "schema": {"type": "string", "maxLength": 255},
        "description": "The same key, path and body give the same turn again (`Idempotency-Replayed: true`).",
    },
    "Prefer": {
        "in": "header",
        "schema": _TEXT,
        "description": "`wait=N`: answer 200 with the ended turn if it ends within N (at most 60) seconds.",
    },
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    summary: str
    tag: str
    answers: dict[int, str | None]
    """Status to the name of a schema; None: no JSON body."""
    problems: tuple[int, ...] = ()
    """Statuses with a Problem, beside those every operation has."""
    body: str | None = None
    parameters: tuple[str, ...] = ()
    media_type: str = "application/json"


_OPTIONAL_BODIES = frozenset({"Empty", "CancelTurn"})
_PAGE = ("limit", "after")
_TURN_FILTER = ("status", "reason", *_PAGE)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST", "/v1/sessions", "Make a session", "sessions", {201: "Session"}, (409, 413, 415, 422), "NewSession"
    ),
    Operation("GET", "/v1/sessions", "List sessions", "sessions", {200: "SessionList"}, parameters=_PAGE),
    Operation("GET", "/v1/sessions/{session_id}", "Look at a session", "sessions", {200: "Session"}, (404,)),
    Operation(
        "PATCH",
        "/v1/sessions/{session_id}",
        "Change a session; paused ones queue without running, archived ones refuse turns",
        "sessions",
        {200: "Session"},
        (404, 409, 413, 415, 422),
        "SessionPatch",
    ),
    Operation("DELETE", "/v1/sessions/{session_id}", "Delete a session and all in it", "sessions", {204: None}, (404,)),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/messages",
        "List a session's messages, oldest first",
        "sessions",
        {200: "MessageList"},
        (404,),
        parameters=_PAGE,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/search",
        "Find messages of a session, the best first",
        "sessions",
        {200: "HitList"},
        (404,),
        None,
        ("q", "most_hits"),
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/context",
        "Look at what the model would be sent now, layer by layer",
        "memory",
        {200: "Context"},
        (404,),
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/recalled",
        "Put messages back into the context, beside the next questions",
        "memory",
        {200: "Recalled"},
        (404, 413, 415, 422),
        "Recall",
    ),
    Operation(
        "DELETE",
        "/v1/sessions/{session_id}/recalled",
        "Take all recalled messages out of the context again",
        "memory",
        {200: "Recalled"},
        (404,),
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/snapshots",
        "List former summaries of a session, the newest first",
        "memory",
        {200: "SnapshotList"},
        (404,),
        parameters=_PAGE,
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/turns",
        "Submit a turn; the session is made if it is new",
        "turns",
        {202: "Turn", 200: "Turn"},
        (409, 413, 415, 422, 429),
        "NewTurn",
        ("Idempotency-Key", "Prefer"),
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/turns",
        "List a session's turns",
        "turns",
        {200: "TurnList"},
        (404,),
        parameters=_TURN_FILTER,
    ),
    Operation("GET", "/v1/turns", "List turns", "turns", {200: "TurnList"}, parameters=_TURN_FILTER),
    Operation(
        "GET",
        "/v1/turns/{turn_id}",
        "Look at a turn, or wait for its end",
        "turns",
        {200: "Turn"},
        (404,),
        None,
        ("wait",),
    ),
    Operation(
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
    Operation(
        "POST",
        "/v1/turns/{turn_id}/cancel",
        "Ask a turn to end; one that has ended is answered as it is",
        "turns",
        {202: "Turn"},
        (404, 413, 415, 422),
        "CancelTurn",
    ),
    Operation(
        "POST",
        "/v1/turns/{turn_id}/retry",
        "Run a failed turn's question again, as a new turn at the tail of its lane",
        "turns",
        {202: "Turn", 200: "Turn"},
        (404, 409, 413, 415, 422, 429),
        "Empty",
        ("Idempotency-Key", "Prefer"),
    ),
    Operation("GET", "/v1/agents", "List agents", "agents", {200: "AgentList"}),
    Operation("GET", "/v1/agents/{name}", "Look at an agent", "agents", {200: "Agent"}, (404,)),
    Operation(
        "GET", "/v1/tools", "List the tools of an agent", "agents", {200: "ToolList"}, (422,), parameters=("agent",)
    ),
    Operation("GET", "/v1/usage", "Sum tokens and cost", "operation", {200: "UsageRowList"}, parameters=("group_by",)),
    Operation("GET", "/v1/queue/stats", "Count what waits and runs", "operation", {200: "QueueStats"}),
    Operation("GET", "/v1/deliveries", "List webhook deliveries", "operation", {200: "DeliveryList"}, parameters=_PAGE),
    Operation(
        "POST",
        "/v1/deliveries/{delivery_id}/replay",
        "Send a webhook delivery again",
        "operation",
        {202: "Delivery"},
        (404, 409, 413, 415, 422),
        "Empty",
    ),
    Operation("GET", "/healthz", "The process is alive", "probes", {200: "Health"}),
    Operation("GET", "/readyz", "Database, Redis and a worker that takes turns are there", "probes", {200: "Health"}),
    Operation(
        "GET", "/metrics", "Figures for Prometheus", "probes", {200: None}, (401, 403, 503), media_type="text/plain"
    ),
    Operation("GET", "/openapi.json", "This document", "pages", {200: None}),
    Operation("GET", "/docs", "This document for people", "pages", {200: None}, media_type="text/html"),
    Operation("GET", "/", "A page to ask and watch", "pages", {200: None}, media_type="text/html"),
)


def document() -> Json:
    """The whole document, ready to be sent as JSON."""
    paths: Json = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Loom",
            "version": VERSION,
            "description": "Durable background turns for LLM agents. Errors are application/problem+json (RFC 9457); "
            "every answer carries `X-Request-Id` and `traceparent`; times are RFC 3339 in UTC.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "With no key configured only clients on the same machine are served, without one.",
                }
            },
        },
    }


def _described(operation: Operation) -> Json:
    told: Json = {
        "operationId": re.sub(r"\W+", "_", f"{operation.method.lower()} {operation.path}").strip("_"),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [
            *_path_parameters(operation.path),
            *({"name": n, **PARAMETERS[n]} for n in operation.parameters),
        ],
        "responses": _answers(operation) | {str(status): _problem(status) for status in _problems(operation)},
        "security": _security(operation.path),
    }
    if operation.body is not None:
        content = {"application/json": {"schema": _ref(operation.body)}}
        told["requestBody"] = {"required": operation.body not in _OPTIONAL_BODIES, "content": content}
    return told


def _security(path: str) -> list[Json]:
    if path == "/metrics":
        return [{}, {"key": []}]
    return [{"key": []}] if path.startswith("/v1/") else []


def _path_parameters(path: str) -> list[Json]:
    names = re.findall(r"{(\w+)}", path)
    return [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names]


def _answers(operation: Operation) -> Json:
    told: Json = {}
    for status, name in operation.answers.items():
        told[str(status)] = {"description": HTTPStatus(status).phrase}
        if status != HTTPStatus.NO_CONTENT:
            schema: Schema = {} if name is None else {"schema": _ref(name)}
            told[str(status)]["content"] = {operation.media_type: schema}
    return told


def _problems(operation: Operation) -> list[int]:
    """Probes and pages are served to everyone; the API may refuse anyone and be busy at any time."""
    if operation.path == "/readyz":
        return [503]
    everywhere = (400, 401, 403, 503) if operation.path.startswith("/v1/") else ()
    return sorted({*everywhere, *operation.problems})


def _problem(status: int) -> Json:
    content = {"application/problem+json": {"schema": _ref("Problem")}}
    return {"description": HTTPStatus(status).phrase, "content": content}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
