"""JSON-RPC 2.0 as the Agent2Agent protocol uses it: requests, answers, and errors with their codes."""

from dataclasses import dataclass
from typing import Literal

from loom_worker.core.errors import Conflict, Invalid, NotFound, Rejected
from loom_worker.core.values.json import Json

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
TASK_NOT_FOUND = -32001
TASK_NOT_CANCELABLE = -32002
UNSUPPORTED_OPERATION = -32004
CONTENT_TYPE_NOT_SUPPORTED = -32005
NO_EXTENDED_CARD = -32007
VERSION_NOT_SUPPORTED = -32009

_REASONS = {
    PARSE_ERROR: "PARSE_ERROR",
    INVALID_REQUEST: "INVALID_REQUEST",
    METHOD_NOT_FOUND: "METHOD_NOT_FOUND",
    INVALID_PARAMS: "INVALID_PARAMS",
    TASK_NOT_FOUND: "TASK_NOT_FOUND",
    TASK_NOT_CANCELABLE: "TASK_NOT_CANCELABLE",
    UNSUPPORTED_OPERATION: "UNSUPPORTED_OPERATION",
    CONTENT_TYPE_NOT_SUPPORTED: "CONTENT_TYPE_NOT_SUPPORTED",
    NO_EXTENDED_CARD: "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    VERSION_NOT_SUPPORTED: "VERSION_NOT_SUPPORTED",
}
_MOST_METHOD_CHARS = 128
RpcId = str | int | None


class RpcError(Rejected):
    """The protocol has a code for what is wrong; ``args[1]`` is that code."""

    @property
    def code(self) -> int:
        return int(self.args[1])


@dataclass(frozen=True, slots=True)
class RpcRequest:
    """One call."""

    id: RpcId
    method: str
    params: Json

    @classmethod
    def of(cls, body: Json) -> "RpcRequest":
        """The request that a body holds.

        Raises:
            RpcError: INVALID_REQUEST or INVALID_PARAMS.
        """
        method, params = body.get("method"), body.get("params", {})
        if body.get("jsonrpc") != "2.0":
            raise RpcError('the member "jsonrpc" must be "2.0"', INVALID_REQUEST)
        if not isinstance(method, str) or not 0 < len(method) <= _MOST_METHOD_CHARS:
            raise RpcError('the member "method" must be the name of a method', INVALID_REQUEST)
        if "id" in body and not _is_id(body["id"]):
            raise RpcError('the member "id" must be a string, a whole number or null', INVALID_REQUEST)
        if not isinstance(params, dict):
            raise RpcError('the member "params" must be an object', INVALID_PARAMS)
        return cls(body.get("id"), method, params)


def id_of(body: Json) -> RpcId:
    """The id that the answer to a request has; None where the request's own cannot be used."""
    given: RpcId = body.get("id") if _is_id(body.get("id")) else None
    return given


def succeeded(request_id: RpcId, result: object) -> Json:
    """The answer to a call that succeeded."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def failed(request_id: RpcId, error: RpcError) -> Json:
    """The answer to a call that did not; ``data`` has the reason as google.rpc.ErrorInfo, as 1.0 asks for it."""
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": _REASONS[error.code],
        "domain": "a2a-protocol.org",
    }
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": error.code, "message": str(error), "data": [info]},
    }


def rpc_error(error: Rejected) -> RpcError | None:
    """A refusal of the service in the protocol's terms; None for one that has a status of HTTP only (401, 403, 429)."""
    match error:
        case RpcError():
            return error
        case NotFound():
            return RpcError(str(error), TASK_NOT_FOUND)
        case Conflict():
            return RpcError(str(error), UNSUPPORTED_OPERATION)
        case Invalid():
            return RpcError(str(error), INVALID_PARAMS)
        case _:
            return None


def _is_id(given: object) -> bool:
    return given is None or (isinstance(given, str | int) and not isinstance(given, bool))


Version = Literal["1.0", "0.3"]
PushOperation = Literal["set_push", "get_push", "list_push", "delete_push"]
Operation = Literal["send", "stream", "get", "list", "cancel", "subscribe", "card"] | PushOperation
VERSIONS: tuple[Version, ...] = ("1.0", "0.3")
VERSION_HEADER = "A2A-Version"


@dataclass(frozen=True, slots=True)
class Method:
    """What a name asks for."""

    operation: Operation
    version: Version


METHODS = {
    "SendMessage": Method("send", "1.0"),
    "SendStreamingMessage": Method("stream", "1.0"),
    "GetTask": Method("get", "1.0"),
    "ListTasks": Method("list", "1.0"),
    "CancelTask": Method("cancel", "1.0"),
    "SubscribeToTask": Method("subscribe", "1.0"),
    "CreateTaskPushNotificationConfig": Method("set_push", "1.0"),
    "GetTaskPushNotificationConfig": Method("get_push", "1.0"),
    "ListTaskPushNotificationConfigs": Method("list_push", "1.0"),
    "DeleteTaskPushNotificationConfig": Method("delete_push", "1.0"),
    "GetExtendedAgentCard": Method("card", "1.0"),
    "message/send": Method("send", "0.3"),
    "message/stream": Method("stream", "0.3"),
    "tasks/get": Method("get", "0.3"),
    "tasks/cancel": Method("cancel", "0.3"),
    "tasks/resubscribe": Method("subscribe", "0.3"),
    "tasks/pushNotificationConfig/set": Method("set_push", "0.3"),
    "tasks/pushNotificationConfig/get": Method("get_push", "0.3"),
    "tasks/pushNotificationConfig/list": Method("list_push", "0.3"),
    "tasks/pushNotificationConfig/delete": Method("delete_push", "0.3"),
    "agent/getAuthenticatedExtendedCard": Method("card", "0.3"),
}


def method(name: str, version: str | None) -> Method:
    """The method of a name.

    Args:
        version: what the request's header says; None or empty: nothing. The name alone tells the version then.

    Raises:
        RpcError: METHOD_NOT_FOUND, or VERSION_NOT_SUPPORTED for a version that is neither 1.0 nor 0.3.
    """
    if version and ".".join(version.strip().split(".")[:2]) not in VERSIONS:
        raise RpcError(f"the versions {' and '.join(VERSIONS)} of the protocol are spoken here", VERSION_NOT_SUPPORTED)
    found = METHODS.get(name)
    if found is None:
        raise RpcError("there is no such method", METHOD_NOT_FOUND)
    return found
