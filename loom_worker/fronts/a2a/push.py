"""Push notifications: a turn's webhook, written as the protocol's configuration, and the body of its deliveries."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from loom_worker.core.values.cutting import dump, entries, fit, size_bytes, text
from loom_worker.core.values.json import Json
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.webhooks import Webhook, WebhookFormat
from loom_worker.fronts.a2a.rpc import INVALID_PARAMS, RpcError, Version
from loom_worker.fronts.a2a.tasks import OURS, artifact, task_of
from loom_worker.fronts.a2a.version_03 import old_task
from loom_worker.webhook.body import LIMIT_BYTES, TurnBody

TOKEN_HEADER = "X-A2A-Notification-Token"  # noqa: S105 - a header's name
FORMATS: dict[Version, WebhookFormat] = {"1.0": "a2a", "0.3": "a2a-0.3"}
_ENVELOPE_BYTES = 1_000
"""Kept free for all that has a short and known length."""
_METADATA_BYTES = 2_000
_MESSAGE_BYTES = 6_000
_LONGEST = {"url": 2048, "token": 4096, "id": 128}
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_CREDENTIALS = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,4094}[\x21-\x7e])?")


def webhook_of(config: Json, version: Version) -> Webhook:
    """The webhook that a configuration asks for.

    Raises:
        RpcError: INVALID_PARAMS, it has no URL, or a member cannot stand in a header.
    """
    given = {name: _text(config, name) for name in _LONGEST}
    url = given["url"]
    if url is None:
        raise RpcError("the push notification's url must be given", INVALID_PARAMS)
    headers = {}
    if (token := given["token"]) is not None:
        if not _CREDENTIALS.fullmatch(token):
            raise RpcError("the push notification's token must be printable ASCII", INVALID_PARAMS)
        headers[TOKEN_HEADER] = token
    return Webhook(url, format=FORMATS[version], headers={**headers, **_authorization(config)}, name=given["id"])


def config_of(turn: Turn) -> Json | None:
    """The configuration that a turn's webhook is; None: it has none, or one that was not set through this protocol."""
    webhook = turn.webhook
    if webhook is None or webhook.format not in FORMATS.values():
        return None
    config: Json = {"id": webhook.name or turn.id, "taskId": turn.id, "url": webhook.url}
    if token := webhook.headers.get(TOKEN_HEADER):
        config["token"] = token
    if authorization := webhook.headers.get("Authorization"):
        scheme, _, credentials = authorization.partition(" ")
        config["authentication"] = {"scheme": scheme, "credentials": credentials}
    return config


@dataclass(frozen=True, slots=True)
class PushBody:
    """Writes the body of push notifications of one version."""

    version: Version

    def of(self, turn: Turn) -> str:
        """The task as it is now; what makes it too long for webhooks is cut, and its metadata then say so."""
        task = task_of(turn.as_json(), history_length=0)
        whole = dump(self._written(task))
        if size_bytes(whole) < LIMIT_BYTES:
            return whole
        metadata = {**task["metadata"], OURS: {**task["metadata"][OURS], "truncated": True}}
        own = fit({name: value for name, value in metadata.items() if name != OURS}, _METADATA_BYTES, entries)
        cut: Json = {**task, "metadata": {**own, OURS: metadata[OURS]}}
        if message := task["status"].get("message"):
            parts = [{"text": fit(part["text"], _MESSAGE_BYTES, text)} for part in message["parts"] if "text" in part]
            cut["status"] = {**task["status"], "message": {**message, "parts": parts}}
        if "artifacts" in task:
            rest = size_bytes(dump(self._written({**cut, "artifacts": [artifact("")]})))
            said = fit(turn.output_text, LIMIT_BYTES - rest - _ENVELOPE_BYTES, text)
            cut["artifacts"] = [artifact(said)]
        return dump(self._written(cut))

    def _written(self, task: Json) -> Json:
        return old_task(task) if self.version == "0.3" else {"task": task}


PUSH_BODIES: Mapping[WebhookFormat, TurnBody] = {
    "a2a": PushBody("1.0"),
    "a2a-0.3": PushBody("0.3"),
}


def _authorization(config: Json) -> dict[str, str]:
    given = config.get("authentication") or {}
    if not isinstance(given, dict):
        raise RpcError("the push notification's authentication must be an object", INVALID_PARAMS)
    scheme, credentials = given.get("scheme") or "", given.get("credentials") or ""
    if not scheme and not credentials:
        return {}
    is_sound = isinstance(scheme, str) and isinstance(credentials, str) and _SCHEME.fullmatch(scheme)
    if not is_sound or not _CREDENTIALS.fullmatch(credentials):
        detail = "must be a scheme, such as Bearer, and credentials, both printable ASCII"
        raise RpcError(f"the push notification's authentication {detail}", INVALID_PARAMS)
    return {"Authorization": f"{scheme} {credentials}"}


def _text(config: Json, name: str) -> str | None:
    given = config.get(name)
    if given in (None, ""):
        return None
    if not isinstance(given, str) or len(given) > _LONGEST[name]:
        raise RpcError(f"the push notification's {name} must be at most {_LONGEST[name]} characters", INVALID_PARAMS)
    return given
