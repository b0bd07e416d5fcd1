"""What the API can do: a table of operations, as the OpenAPI document lists them, and the scope that each needs."""

from dataclasses import dataclass

from loom_worker.core.values.api_keys import KeyScope


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
    scope: KeyScope | None = None
    """What a key needs for it; every operation under ``/v1`` has one (a test checks), pages and probes have none."""


_PAGE = ("limit", "after")
_TURN_FILTER = ("status", "reason", *_PAGE)

OPERATIONS: tuple[ApiOperation, ...] = (
    ApiOperation(
        "POST",
        "/v1/sessions",
        "Make a session",
        "sessions",
        {201: "Session"},
        (409, 413, 415, 422),
        "NewSession",
        scope="chat",
    ),
    ApiOperation(
        "GET", "/v1/sessions", "List sessions", "sessions", {200: "SessionList"}, parameters=_PAGE, scope="read"
    ),
    ApiOperation(
        "GET", "/v1/sessions/{session_id}", "Look at a session", "sessions", {200: "Session"}, (404,), scope="read"
    ),
    ApiOperation(
        "PATCH",
        "/v1/sessions/{session_id}",
        "Change a session; paused ones queue without running, archived ones refuse turns",
        "sessions",
        {200: "Session"},
        (404, 409, 413, 415, 422),
        "SessionPatch",
        scope="chat",
    ),
    ApiOperation(
        "DELETE",
        "/v1/sessions/{session_id}",
        "Delete a session and all in it",
        "sessions",
        {204: None},
        (404,),
        scope="chat",
    ),
    ApiOperation(
        "GET",
        "/v1/sessions/{session_id}/messages",
        "List a session's messages, oldest first",
        "sessions",
        {200: "MessageList"},
        (404,),
        parameters=_PAGE,
        scope="read",
    ),
    ApiOperation(
        "GET",
        "/v1/sessions/{session_id}/messages/{message_id}",
        "Look at one message, whole",
        "sessions",
        {200: "Message"},
        (404,),
        scope="read",
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
        scope="read",
    ),
    ApiOperation(
        "GET",
        "/v1/sessions/{session_id}/context",
        "Look at what the model would be sent now, layer by layer",
        "memory",
        {200: "Context"},
        (404,),
        scope="read",
    ),
    ApiOperation(
        "POST",
        "/v1/sessions/{session_id}/recalled",
        "Put messages back into the context, with the next questions",
        "memory",
        {200: "Recalled"},
        (404, 413, 415, 422),
        "Recall",
        scope="chat",
    ),
    ApiOperation(
        "DELETE",
        "/v1/sessions/{session_id}/recalled",
        "Take all recalled messages out of the context again",
        "memory",
        {200: "Recalled"},
        (404,),
        scope="chat",
    ),
    ApiOperation(
        "GET",
        "/v1/sessions/{session_id}/snapshots",
        "List former summaries of a session, the newest first",
        "memory",
        {200: "SnapshotList"},
        (404,),
        parameters=_PAGE,
        scope="read",
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
        scope="chat",
    ),
    ApiOperation(
        "GET",
        "/v1/sessions/{session_id}/turns",
        "List a session's turns",
        "turns",
        {200: "TurnList"},
        (404,),
        parameters=_TURN_FILTER,
        scope="read",
    ),
    ApiOperation("GET", "/v1/turns", "List turns", "turns", {200: "TurnList"}, parameters=_TURN_FILTER, scope="read"),
    ApiOperation(
        "GET",
        "/v1/turns/{turn_id}",
        "Look at a turn, or wait for its end",
        "turns",
        {200: "Turn"},
        (404,),
        None,
        ("wait",),
        scope="read",
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
        scope="read",
    ),
    ApiOperation(
        "POST",
        "/v1/turns/{turn_id}/cancel",
        "Ask a turn to end; one that has ended is answered as it is",
        "turns",
        {202: "Turn"},
        (404, 413, 415, 422),
        "CancelTurn",
        scope="chat",
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
        scope="chat",
    ),
    ApiOperation(
        "POST",
        "/v1/turns/{turn_id}/approvals/{call_id}",
        "Decide on a tool call that waits for a person",
        "turns",
        {200: "Turn"},
        (404, 409, 413, 415, 422),
        "Decision",
        scope="chat",
    ),
    ApiOperation(
        "GET",
        "/v1/errors",
        "List errors of tools, the newest first",
        "results",
        {200: "ErrorList"},
        parameters=("session", "tool", "since", "until", *_PAGE),
        scope="read",
    ),
    ApiOperation(
        "GET", "/v1/errors/{error_id}", "Look at a tool's whole error", "results", {200: "Error"}, (404,), scope="read"
    ),
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
        scope="read",
    ),
    ApiOperation(
        "GET", "/v1/agents", "List agents", "agents", {200: "AgentList"}, (422,), parameters=_PAGE, scope="read"
    ),
    ApiOperation("GET", "/v1/agents/{name}", "Look at an agent", "agents", {200: "Agent"}, (404,), scope="read"),
    ApiOperation(
        "GET",
        "/v1/tools",
        "List the tools of an agent",
        "agents",
        {200: "ToolList"},
        (422,),
        parameters=("agent", *_PAGE),
        scope="read",
    ),
    ApiOperation(
        "GET",
        "/v1/patterns",
        "List the patterns, and what of their files is in error",
        "patterns",
        {200: "PatternList"},
        (422,),
        parameters=("category", *_PAGE),
        scope="read",
    ),
    ApiOperation(
        "GET",
        "/v1/patterns/match",
        "Find the patterns that fit a question, and why",
        "patterns",
        {200: "PatternMatchList"},
        (422,),
        parameters=("question", "k", "matching_agent"),
        scope="read",
    ),
    ApiOperation(
        "GET",
        "/v1/patterns/{pattern_id}",
        "Look at a pattern, and at what came of it",
        "patterns",
        {200: "Pattern"},
        (404,),
        scope="read",
    ),
    ApiOperation(
        "GET",
        "/v1/usage",
        "Sum tokens and cost",
        "operation",
        {200: "UsageRowList"},
        (422,),
        parameters=("group_by", "turn", "session", "of_agent", "model", "kind", "since", "until", *_PAGE),
        scope="read",
    ),
    ApiOperation(
        "GET",
        "/v1/workspaces/{workspace}",
        "Look at your workspace, and at what is used of its budget",
        "operation",
        {200: "Workspace"},
        (404,),
        scope="read",
    ),
    ApiOperation(
        "PATCH",
        "/v1/workspaces/{workspace}",
        "Change the rules of your workspace",
        "operation",
        {200: "Workspace"},
        (404, 413, 415, 422),
        "WorkspacePatch",
        scope="admin",
    ),
    ApiOperation("GET", "/v1/queue/stats", "Count what waits and runs", "operation", {200: "QueueStats"}, scope="read"),
    ApiOperation(
        "GET",
        "/v1/deliveries",
        "List webhook deliveries",
        "operation",
        {200: "DeliveryList"},
        parameters=_PAGE,
        scope="read",
    ),
    ApiOperation(
        "POST",
        "/v1/deliveries/{delivery_id}/replay",
        "Send a webhook delivery again",
        "operation",
        {202: "Delivery"},
        (404, 409, 413, 415, 422),
        "Empty",
        scope="admin",
    ),
    ApiOperation(
        "GET", "/v1/keys", "List API keys, ended ones too", "keys", {200: "KeyList"}, parameters=_PAGE, scope="admin"
    ),
    ApiOperation(
        "POST",
        "/v1/keys",
        "Make an API key; its secret is shown in this answer only",
        "keys",
        {201: "MadeKey"},
        (413, 415, 422),
        "NewKey",
        scope="admin",
    ),
    ApiOperation("DELETE", "/v1/keys/{key_id}", "Revoke an API key", "keys", {204: None}, (404, 409), scope="admin"),
    ApiOperation(
        "POST",
        "/v1/keys/{key_id}/rotate",
        "Replace an API key by a new one, whose secret is shown in this answer only",
        "keys",
        {200: "MadeKey"},
        (404, 409, 413, 415, 422),
        "RotateKey",
        scope="admin",
    ),
    ApiOperation(
        "GET",
        "/v1/pairings",
        "List who of which channel is which user",
        "users",
        {200: "PairingList"},
        parameters=_PAGE,
        scope="admin",
    ),
    ApiOperation(
        "POST",
        "/v1/pairings",
        "Say who somebody of a channel is; again, it changes nothing",
        "users",
        {201: "Pairing"},
        (409, 413, 415, 422),
        "NewPairing",
        scope="admin",
    ),
    ApiOperation(
        "DELETE",
        "/v1/pairings/{pairing_id}",
        "Forget who somebody of a channel is",
        "users",
        {204: None},
        (404,),
        scope="admin",
    ),
    ApiOperation(
        "GET",
        "/v1/audit",
        "List who did what, the newest first",
        "audit",
        {200: "AuditRowList"},
        (422,),
        parameters=("action", "user", "session", "turn", "since", "until", *_PAGE),
        scope="admin",
    ),
    ApiOperation(
        "DELETE",
        "/v1/users/{user}",
        "Delete a user's sessions with all in them, and revoke the user's keys; running turns are stopped",
        "audit",
        {200: "DeletedUser"},
        (404,),
        scope="admin",
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
