"""The names of the protocol's methods in each of its versions."""

from dataclasses import dataclass
from typing import Literal

from loom_worker.fronts.a2a.rpc import METHOD_NOT_FOUND, VERSION_NOT_SUPPORTED, RpcError

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
