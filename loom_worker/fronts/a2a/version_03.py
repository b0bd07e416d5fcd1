"""The form of version 0.3: what it names or nests differently, translated from and to the form of 1.0. Pure."""

from loom_worker.core.values.json import Json

ENDS = frozenset({"completed", "canceled", "failed", "rejected", "input-required"})
"""States with which a stream ends."""
_ROLES = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}
_OLD_ROLES = {new: old for old, new in _ROLES.items()}


def send_params(params: Json) -> Json:
    """The parameters of ``message/send`` as those of ``SendMessage``; what has the wrong type stays as it is."""
    message, asked = params.get("message"), params.get("configuration")
    if isinstance(message, dict):
        role, parts = message.get("role", "user"), message.get("parts")
        new_parts = [_new_part(part) for part in parts] if isinstance(parts, list) else parts
        message = {**message, "role": _ROLES.get(str(role), role), "parts": new_parts}
    if isinstance(asked, dict):
        asked = {**asked, "returnImmediately": asked.get("blocking") is False}
        if "pushNotificationConfig" in asked:
            asked["taskPushNotificationConfig"] = _new_config(asked["pushNotificationConfig"])
    return {**params, "message": message, "configuration": asked}


def push_params(params: Json) -> Json:
    """The parameters of the methods for push notifications as those of 1.0."""
    if "pushNotificationConfig" in params:
        config = _new_config(params["pushNotificationConfig"])
        return {**config, "taskId": params.get("taskId")} if isinstance(config, dict) else params
    return {"taskId": params.get("id"), "id": params.get("pushNotificationConfigId")}


def old_config(config: Json) -> Json:
    """A push notification's configuration with its task."""
    inner = {name: value for name, value in config.items() if name != "taskId"}
    if "authentication" in inner:
        known = inner["authentication"]
        inner["authentication"] = {"schemes": [known["scheme"]], "credentials": known["credentials"]}
    return {"taskId": config["taskId"], "pushNotificationConfig": inner}


def old_task(task: Json) -> Json:
    """A task."""
    old: Json = {**task, "kind": "task", "status": _old_status(task["status"])}
    if "artifacts" in task:
        old["artifacts"] = [_old_artifact(each) for each in task["artifacts"]]
    if "history" in task:
        old["history"] = [_old_message(each) for each in task["history"]]
    return old


def old_response(response: Json) -> Json:
    """A response of a stream."""
    if "task" in response:
        return old_task(response["task"])
    if "statusUpdate" in response:
        update = response["statusUpdate"]
        status = _old_status(update["status"])
        return {**update, "kind": "status-update", "status": status, "final": status["state"] in ENDS}
    update = response["artifactUpdate"]
    return {**update, "kind": "artifact-update", "artifact": _old_artifact(update["artifact"])}


def _old_status(status: Json) -> Json:
    state = status["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")
    return {**status, "state": state, **({"message": _old_message(status["message"])} if "message" in status else {})}


def _old_message(message: Json) -> Json:
    parts = [_old_part(part) for part in message["parts"]]
    return {**message, "kind": "message", "role": _OLD_ROLES[message["role"]], "parts": parts}


def _old_artifact(artifact: Json) -> Json:
    return {**artifact, "parts": [_old_part(part) for part in artifact["parts"]]}


def _old_part(part: Json) -> Json:
    return {"kind": "text" if "text" in part else "data", **part}


def _new_part(part: object) -> object:
    """A part without its kind; a file becomes one of those that 1.0 has, and is refused as such."""
    if not isinstance(part, dict):
        return part
    if part.get("kind") == "file" or "file" in part:
        return {"url": ""}
    return {name: value for name, value in part.items() if name in ("text", "data", "metadata")}


def _new_config(config: object) -> object:
    if not isinstance(config, dict) or not isinstance(config.get("authentication"), dict):
        return config
    known = config["authentication"]
    schemes = known.get("schemes")
    scheme = schemes[0] if isinstance(schemes, list) and schemes else None
    return {**config, "authentication": {"scheme": scheme, "credentials": known.get("credentials")}}
