"""What the API can do: a table of operations, as the OpenAPI document lists them, and the scope that each needs."""

from web.a2a_operations import A2A_OPERATIONS
from web.api_operation import PAGE, ApiOperation, get, tagged

_TURN_FILTER = ("status", "reason", *PAGE)
_FACT_FILTER = ("fact_status", "topic", *PAGE)
_ACCEPTS = ("Idempotency-Key", "Prefer")
_RESUMED = ("Last-Event-ID", "starting_after")

OPERATIONS: tuple[ApiOperation, ...] = (
    *tagged(
        "sessions",
        ApiOperation(
            "POST /v1/sessions", "Make a session", {201: "Session"}, "NewSession", problems=(409,), scope="chat"
        ),
        get("/v1/sessions", "List sessions", "SessionList", PAGE),
        get("/v1/sessions/{session_id}", "Look at a session", "Session"),
        ApiOperation(
            "PATCH /v1/sessions/{session_id}",
            "Change a session; paused ones queue without running, archived ones refuse turns",
            {200: "Session"},
            "SessionPatch",
            problems=(409,),
            scope="chat",
        ),
        ApiOperation("DELETE /v1/sessions/{session_id}", "Delete a session and all in it", {204: None}, scope="chat"),
        get("/v1/sessions/{session_id}/messages", "List a session's messages, oldest first", "MessageList", PAGE),
        get("/v1/sessions/{session_id}/messages/{message_id}", "Look at one message, whole", "Message"),
        get(
            "/v1/sessions/{session_id}/search",
            "Find messages of a session, the best first",
            "HitList",
            ("q", "most_hits", "one_per"),
        ),
    ),
    *tagged(
        "memory",
        get("/v1/sessions/{session_id}/context", "Look at what the model would be sent now, layer by layer", "Context"),
        ApiOperation(
            "POST /v1/sessions/{session_id}/recalled",
            "Put messages back into the context, with the next questions",
            {200: "Recalled"},
            "Recall",
            scope="chat",
        ),
        ApiOperation(
            "DELETE /v1/sessions/{session_id}/recalled",
            "Take all recalled messages out of the context again",
            {200: "Recalled"},
            scope="chat",
        ),
        get(
            "/v1/sessions/{session_id}/snapshots",
            "List former summaries of a session, the newest first",
            "SnapshotList",
            PAGE,
        ),
    ),
    *tagged(
        "turns",
        ApiOperation(
            "POST /v1/sessions/{session_id}/turns",
            "Submit a turn; the session is made if it is new",
            {202: "Turn", 200: "Turn"},
            "NewTurn",
            _ACCEPTS,
            problems=(409,),
            scope="chat",
        ),
        get("/v1/sessions/{session_id}/turns", "List a session's turns", "TurnList", _TURN_FILTER),
        get("/v1/turns", "List turns", "TurnList", _TURN_FILTER),
        get("/v1/turns/{turn_id}", "Look at a turn, or wait for its end", "Turn", ("wait",)),
        ApiOperation(
            "GET /v1/turns/{turn_id}/events",
            "Stream a turn's events, while it runs and after",
            {200: "Event"},
            parameters=_RESUMED,
            scope="read",
            media_type="text/event-stream",
        ),
        get(
            "/v1/turns/{turn_id}/trace",
            "List the spans of a turn's trace, while it runs and after",
            "TraceSpanList",
            PAGE,
        ),
        ApiOperation(
            "POST /v1/turns/{turn_id}/cancel",
            "Ask a turn to end; one that has ended is answered as it is",
            {202: "Turn"},
            "CancelTurn",
            scope="chat",
        ),
        ApiOperation(
            "POST /v1/turns/{turn_id}/retry",
            "Run a failed turn's question again, as a new turn at the tail of its lane",
            {202: "Turn", 200: "Turn"},
            "Empty",
            _ACCEPTS,
            problems=(409,),
            scope="chat",
        ),
        ApiOperation(
            "POST /v1/turns/{turn_id}/approvals/{call_id}",
            "Decide on a tool call that waits for a person",
            {200: "Turn"},
            "Decision",
            problems=(409,),
            scope="chat",
        ),
    ),
    *tagged(
        "results",
        get(
            "/v1/errors",
            "List errors of tools, the newest first",
            "ErrorList",
            ("session", "tool", "since", "until", *PAGE),
        ),
        get("/v1/errors/{error_id}", "Look at a tool's whole error", "Error"),
        ApiOperation(
            "GET /v1/blobs/{ref}",
            "Download a tool's large result, whole or a range of it, in the media type the tool gave it",
            {200: None, 206: None, 304: None},
            parameters=("Range", "If-Range", "If-None-Match"),
            problems=(416,),
            scope="read",
            media_type="*/*",
        ),
    ),
    *tagged(
        "agents",
        get("/v1/agents", "List agents", "AgentList", PAGE),
        get("/v1/agents/{name}", "Look at an agent", "Agent"),
        get("/v1/tools", "List the tools that an agent has in your workspace", "ToolList", ("agent", *PAGE)),
    ),
    *tagged(
        "patterns",
        get(
            "/v1/patterns", "List the patterns, and what of their files is in error", "PatternList", ("category", *PAGE)
        ),
        get(
            "/v1/patterns/match",
            "Find the patterns that fit a question, and why",
            "PatternMatchList",
            ("question", "k", "matching_agent"),
            problems=(422,),
        ),
        get("/v1/patterns/{pattern_id}", "Look at a pattern, and at what came of it", "Pattern"),
    ),
    *tagged(
        "operation",
        get(
            "/v1/usage",
            "Sum tokens and cost",
            "UsageRowList",
            ("group_by", "turn", "session", "of_agent", "model", "kind", "since", "until", *PAGE),
        ),
        get("/v1/workspaces/{workspace}", "Look at your workspace, and at what is used of its budget", "Workspace"),
        ApiOperation(
            "PATCH /v1/workspaces/{workspace}",
            "Change the rules of your workspace",
            {200: "Workspace"},
            "WorkspacePatch",
            scope="admin",
        ),
        get("/v1/queue/stats", "Count what waits and runs", "QueueStats"),
        get("/v1/deliveries", "List webhook deliveries", "DeliveryList", PAGE),
        ApiOperation(
            "POST /v1/deliveries/{delivery_id}/replay",
            "Send a webhook delivery again",
            {202: "Delivery"},
            "Empty",
            problems=(409,),
            scope="admin",
        ),
        get(
            "/v1/agent-messages",
            "List messages between agents, the newest first",
            "AgentMessageList",
            ("to_agent", "message_status", *PAGE),
        ),
        get("/v1/agent-messages/{agent_message_id}", "Look at a message between agents, whole", "AgentMessage"),
        ApiOperation(
            "POST /v1/agent-messages/{agent_message_id}/replay",
            "Queue a dead message between agents again",
            {200: "AgentMessage"},
            "Empty",
            problems=(409,),
            scope="admin",
        ),
    ),
    *tagged(
        "workflows",
        get("/v1/workflows", "List the workflows, and what of their files is in error", "WorkflowList", PAGE),
        get("/v1/workflows/{name}", "Look at a workflow", "Workflow", problems=(422,)),
        ApiOperation(
            "POST /v1/workflows/{name}/runs",
            "Start a run of a workflow",
            {202: "Run", 200: "Run"},
            "NewRun",
            _ACCEPTS,
            scope="chat",
        ),
        get("/v1/runs", "List runs, the newest first", "RunList", ("of_workflow", "status", *PAGE)),
        get("/v1/runs/{run_id}", "Look at a run, or wait for its end", "Run", ("wait",)),
        ApiOperation(
            "DELETE /v1/runs/{run_id}", "Delete a run and the sessions of its stages", {204: None}, scope="chat"
        ),
        ApiOperation(
            "GET /v1/runs/{run_id}/events",
            "Stream a run's events, while it goes on and after",
            {200: "Event"},
            parameters=_RESUMED,
            scope="read",
            media_type="text/event-stream",
        ),
        get(
            "/v1/runs/{run_id}/trace",
            "List the spans of a run and of its turns, while it goes on and after",
            "TraceSpanList",
            PAGE,
        ),
        ApiOperation(
            "POST /v1/runs/{run_id}/cancel",
            "Ask a run to end, with all its turns; one that has ended is answered as it is",
            {202: "Run"},
            "CancelRun",
            scope="chat",
        ),
        ApiOperation(
            "POST /v1/runs/{run_id}/retry",
            "Go on from the failed stage of a run, as a new run",
            {202: "Run", 200: "Run"},
            "Empty",
            _ACCEPTS,
            problems=(409,),
            scope="chat",
        ),
        ApiOperation(
            "POST /v1/runs/{run_id}/approvals/{stage_id}",
            "Decide on a stage's output that waits for a person",
            {200: "Run"},
            "RunDecision",
            problems=(409,),
            scope="chat",
        ),
        get(
            "/v1/schedules",
            "List schedules: when each is due next, and what came of the last time",
            "ScheduleList",
            PAGE,
        ),
        ApiOperation(
            "PATCH /v1/schedules/{name}",
            "Enable or disable a schedule, whatever its file says; null: the file's word counts again",
            {200: "Schedule"},
            "SchedulePatch",
            scope="admin",
        ),
        ApiOperation(
            "POST /v1/schedules/{name}/run",
            "Start what a schedule starts now, beside its plan",
            {202: "ScheduleStart"},
            "Empty",
            problems=(409,),
            scope="admin",
        ),
    ),
    *tagged(
        "catalog",
        get(
            "/v1/agents/{name}/learned",
            "List the versions of an agent's learned layer, the newest first, with what came of each",
            "LearnedVersionList",
            PAGE,
        ),
        ApiOperation(
            "POST /v1/agents/{name}/learned",
            "Import what DSPy or TextGrad has saved as the next version; 200 if it is there already",
            {200: "LearnedVersion", 201: "LearnedVersion"},
            "NewLearned",
            problems=(409,),
            scope="admin",
        ),
        get("/v1/agents/{name}/learned/{version}", "Look at one version and its layer", "LearnedVersion"),
        ApiOperation(
            "DELETE /v1/agents/{name}/learned/{version}",
            "Remove what a version holds; its number and its scores stay",
            {204: None},
            problems=(409,),
            scope="admin",
        ),
        ApiOperation(
            "POST /v1/agents/{name}/learned/activate",
            "Give a version to the sessions that begin, or to a share of them",
            {200: "LearnedActivation"},
            "ActivateLearned",
            scope="admin",
        ),
        ApiOperation(
            "POST /v1/agents/{name}/learned/rollback",
            "Take the last activation back: the version before it is active again",
            {200: "LearnedActivation"},
            "Empty",
            problems=(409,),
            scope="admin",
        ),
    ),
    *tagged(
        "users",
        get(
            "/v1/users/{user}/facts",
            "List what is known of a user, the newest first: what holds, unless `status` says otherwise",
            "FactList",
            _FACT_FILTER,
        ),
        ApiOperation(
            "PATCH /v1/users/{user}/facts/{fact_id}",
            "Correct a fact: it is closed, and the answer is the one in its place",
            {200: "Fact"},
            "FactPatch",
            problems=(409,),
            scope="chat",
        ),
        ApiOperation(
            "DELETE /v1/users/{user}/facts/{fact_id}",
            "Delete a fact; what was said so far does not bring it back",
            {204: None},
            scope="chat",
        ),
        ApiOperation(
            "DELETE /v1/users/{user}/facts",
            "Delete all that is known of a user; what was said so far does not bring it back",
            {204: None},
            scope="chat",
        ),
    ),
    *tagged(
        "sessions",
        get(
            "/v1/sessions/{session_id}/facts",
            "List the facts that a session says, the newest first",
            "FactList",
            _FACT_FILTER,
        ),
    ),
    *tagged(
        "agents",
        get("/v1/agents/{name}/versions", "List the versions of an agent, the newest first", "AgentVersionList", PAGE),
        get(
            "/v1/agents/{name}/versions/{version}",
            "Look at a version of an agent, with its document",
            "AgentVersionDocument",
            scope="admin",
        ),
        get(
            "/v1/agents/{name}/versions/{version}/diff",
            "Compare two versions of an agent",
            "AgentDiff",
            ("from",),
            problems=(422,),
            scope="admin",
        ),
        ApiOperation(
            "POST /v1/agents/{name}/activate",
            "Let sessions of the workspace have a version of an agent",
            {200: "AgentActivated"},
            "AgentActivation",
            problems=(409,),
            scope="admin",
        ),
    ),
    *tagged(
        "keys",
        get("/v1/keys", "List API keys, ended ones too", "KeyList", PAGE, scope="admin"),
        ApiOperation(
            "POST /v1/keys",
            "Make an API key; its secret is shown in this answer only",
            {201: "MadeKey"},
            "NewKey",
            scope="admin",
        ),
        ApiOperation("DELETE /v1/keys/{key_id}", "Revoke an API key", {204: None}, problems=(409,), scope="admin"),
        ApiOperation(
            "POST /v1/keys/{key_id}/rotate",
            "Replace an API key by a new one, whose secret is shown in this answer only",
            {200: "MadeKey"},
            "RotateKey",
            problems=(409,),
            scope="admin",
        ),
        ApiOperation(
            "POST /v1/sessions/{session_id}/token",
            "Make a token for a browser, which opens this session alone",
            {201: "Token"},
            "NewToken",
            scope="chat",
        ),
        ApiOperation(
            "DELETE /v1/sessions/{session_id}/token", "End all tokens of a session", {204: None}, scope="chat"
        ),
    ),
    *tagged(
        "users",
        get("/v1/pairings", "List who of which channel is which user", "PairingList", PAGE, scope="admin"),
        ApiOperation(
            "POST /v1/pairings",
            "Say who somebody of a channel is; again, it changes nothing",
            {201: "Pairing"},
            "NewPairing",
            problems=(409,),
            scope="admin",
        ),
        ApiOperation(
            "DELETE /v1/pairings/{pairing_id}", "Forget who somebody of a channel is", {204: None}, scope="admin"
        ),
    ),
    *tagged(
        "audit",
        get(
            "/v1/audit",
            "List who did what, the newest first",
            "AuditRowList",
            ("kind_of_act", "user", "of_agent", "session", "turn", "since", "until", *PAGE),
            scope="admin",
        ),
        ApiOperation(
            "DELETE /v1/users/{user}",
            "Delete a user's sessions with all in them, and revoke the user's keys; running turns are stopped",
            {200: "DeletedUser"},
            scope="admin",
        ),
    ),
    *tagged(
        "probes",
        get("/healthz", "The process is alive", "Health", scope=None),
        get(
            "/readyz", "Database, Redis and a worker that takes turns are there", "Health", problems=(503,), scope=None
        ),
        ApiOperation(
            "GET /metrics", "Figures for Prometheus", {200: None}, problems=(401, 403, 503), media_type="text/plain"
        ),
    ),
    *A2A_OPERATIONS,
    *tagged(
        "pages",
        get("/openapi.json", "This document", None, scope=None),
        ApiOperation("GET /docs", "This document for people", {200: None}, media_type="text/html"),
        ApiOperation("GET /", "A page to ask and watch", {200: None}, media_type="text/html"),
    ),
)

TOKEN_PARAMETER = "access_token"  # noqa: S105 - its name
"""Where a browser's EventSource, which sends no header, gives a session's token."""
TOKEN_CALLS = frozenset(
    {
        "GET /v1/sessions/{session_id}",
        "GET /v1/sessions/{session_id}/messages",
        "GET /v1/sessions/{session_id}/messages/{message_id}",
        "GET /v1/sessions/{session_id}/turns",
        "POST /v1/sessions/{session_id}/turns",
        "GET /v1/turns/{turn_id}",
        "GET /v1/turns/{turn_id}/events",
    }
)
"""The operations that a session's token opens."""
