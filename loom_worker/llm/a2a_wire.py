"""What an agent elsewhere is sent by the Agent2Agent protocol, and where: card and methods of both versions. Pure."""

import json
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from loom_worker.core.errors import ProviderFailed
from loom_worker.core.values.json import Json

Version = Literal["1.0", "0.3"]
Call = Literal["send", "stream", "get", "cancel", "subscribe"]
_METHODS: dict[Version, dict[Call, str]] = {
    "1.0": {
        "send": "SendMessage",
        "stream": "SendStreamingMessage",
        "get": "GetTask",
        "cancel": "CancelTask",
        "subscribe": "SubscribeToTask",
    },
    "0.3": {
        "send": "message/send",
        "stream": "message/stream",
        "get": "tasks/get",
        "cancel": "tasks/cancel",
        "subscribe": "tasks/resubscribe",
    },
}
STREAMS: frozenset[Call] = frozenset({"stream", "subscribe"})
CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")  # the second one: before 0.3
_SPOKEN: dict[str, Version] = {"1": "1.0", "0": "0.3"}
"""What an agent is spoken to in, by the first number of its version; 0.2 has the methods and members of 0.3."""
_BINDING = "JSONRPC"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an agent's methods are called, as its card says."""

    url: str
    version: Version
    streams: bool


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to an agent elsewhere."""

    id: str
    """The same each time that it is sent."""
    text: str
    context_id: str | None = None
    """None: the agent begins a new context."""
    task_id: str | None = None
    """Of the task whose question it answers."""


def card_urls(url: str) -> tuple[str, ...]:
    """Where the card of an agent may be, the likeliest place first: the URL itself, if it names a JSON file."""
    return (url,) if urlsplit(url).path.endswith(".json") else tuple(url.rstrip("/") + path for path in CARD_PATHS)


def endpoint(card: Json) -> Endpoint:
    """Where to call, of the versions that are spoken here the newest; ProviderFailed: the card names no such place."""
    version = card.get("protocolVersion") or "0.3"
    own = {"transport": card.get("preferredTransport") or _BINDING, "url": card.get("url")}
    found: dict[Version, str] = {}
    for each in (*_dicts(card.get("supportedInterfaces")), own, *_dicts(card.get("additionalInterfaces"))):
        spoken = _spoken(str(each.get("protocolVersion") or version))
        binding, url = each.get("protocolBinding") or each.get("transport"), each.get("url")
        if spoken and "".join(filter(str.isalpha, str(binding).upper())) == _BINDING and isinstance(url, str):
            found.setdefault(spoken, url)
    capabilities = card.get("capabilities")
    streams = isinstance(capabilities, dict) and capabilities.get("streaming") is True
    for newest in _METHODS:
        if newest in found:
            return Endpoint(found[newest], newest, streams)
    raise ProviderFailed("The remote agent's card names no address that speaks JSON-RPC in version 1.x or 0.x.")


def sending(call: Literal["send", "stream"], message: Outgoing, version: Version) -> bytes:
    """The body that sends a message."""
    part = {"text": message.text} if version == "1.0" else {"kind": "text", "text": message.text}
    sent: Json = {"messageId": message.id, "role": "ROLE_USER" if version == "1.0" else "user", "parts": [part]}
    if version == "0.3":
        sent["kind"] = "message"
    if message.context_id is not None:
        sent["contextId"] = message.context_id
    if message.task_id is not None:
        sent["taskId"] = message.task_id
    modes = ["text/plain"] if version == "1.0" else ["text/plain", "text"]
    return _body(call, version, {"message": sent, "configuration": {"acceptedOutputModes": modes}})


def about_task(call: Literal["get", "cancel", "subscribe"], task_id: str, version: Version) -> bytes:
    """The body that asks for a task, or for its end."""
    return _body(call, version, {"id": task_id})


def _body(call: Call, version: Version, params: Json) -> bytes:
    asked = {"jsonrpc": "2.0", "id": 1, "method": _METHODS[version][call], "params": params}
    return json.dumps(asked, ensure_ascii=False).encode("utf-8", "replace")


def _dicts(value: object) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _spoken(version: str) -> Version | None:
    return _SPOKEN.get(version.strip().lower().removeprefix("v").partition(".")[0])
