"""Operations of the Agent2Agent protocol; the parameters and results of its methods are described by the protocol."""

from loom_worker.fronts.a2a.rpc import METHODS
from web.api_operation import ApiOperation, get, tagged
from web.schemas import FREE, TEXT, Schema, array

_ID: Schema = {"type": ["string", "integer", "null"]}
A2A_REQUESTS: dict[str, Schema] = {
    "A2aCall": {
        "type": "object",
        "description": "A call of JSON-RPC 2.0 with a method of the Agent2Agent protocol, version 1.0 or 0.3.",
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": _ID,
            "method": {"type": "string", "enum": list(METHODS)},
            "params": FREE,
        },
        "required": ["jsonrpc", "method"],
    }
}
A2A_ANSWERS: dict[str, Schema] = {
    "A2aAnswer": {
        "type": "object",
        "description": "The answer of JSON-RPC 2.0: a result or an error. Methods that stream answer with server-sent "
        "events, each of which is one such answer.",
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": _ID,
            "result": {},
            "error": {
                "type": "object",
                "properties": {"code": {"type": "integer"}, "message": TEXT, "data": array(FREE)},
                "required": ["code", "message"],
            },
        },
        "required": ["jsonrpc", "id"],
        "oneOf": [{"required": ["result"]}, {"required": ["error"]}],
    },
    "AgentCard": {
        "type": "object",
        "description": "An agent card, readable for clients of both versions of the protocol.",
        "properties": {"name": TEXT, "description": TEXT, "version": TEXT, "skills": array(FREE)},
        "required": ["name", "description", "version", "supportedInterfaces", "capabilities", "skills", "url"],
    },
}
_CARD = "agent-card.json"
A2A_OPERATIONS: tuple[ApiOperation, ...] = tagged(
    "a2a",
    get(f"/.well-known/{_CARD}", "The card of the default agent (A2A)", "AgentCard", problems=(403, 404), scope=None),
    get(
        f"/a2a/{{name}}/.well-known/{_CARD}", "The card of an agent (A2A)", "AgentCard", problems=(403, 404), scope=None
    ),
    ApiOperation(
        "POST /a2a/{name}",
        "Call a method of the Agent2Agent protocol (JSON-RPC)",
        {200: "A2aAnswer"},
        "A2aCall",
        problems=(400, 401, 403, 413, 415, 429, 503),
        scope="chat",
    ),
)
