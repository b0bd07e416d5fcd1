"""The calls of an agent elsewhere: its card, and requests to addresses that were checked, under a deadline."""

import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

from loom_worker.core import crash_points
from loom_worker.core.errors import Interrupted, Invalid, LoomError, Overloaded, ProviderFailed, StreamBroken, Transient
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import Request
from loom_worker.core.values.json import Json
from loom_worker.guard.net.address import Deadline, Lookup, Target, resolve_in_time, target
from loom_worker.guard.net.http import HttpRequest, OpenAnswer, open_request, retry_after_s
from loom_worker.llm.response import TooLate, TooLong, WatchedBody
from loom_worker.llm.sse import events

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
    """Id of the task whose question it answers."""


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


_ADVICE = {
    401: "It does not accept our credentials: check a2a.auth in the agent's file, and its secret.",
    403: "Our credentials have no permission for this: check a2a.auth in the agent's file.",
    404: "There is no agent at this address: check a2a.url in the agent's file.",
}


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """Where an agent is, and how it is called."""

    url: str
    """URL of the agent, below which its card is, or of the card."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with each call, the secret among them."""
    allow_private: bool = False
    timeout_s: float = 120.0
    """Time of one reply, all of it."""
    max_reply_bytes: int = 4 * 1024 * 1024
    lookup: Lookup = socket.getaddrinfo


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One request, for WatchedBody."""

    address: RemoteAddress
    goal: Target
    ask: HttpRequest
    request: Request
    deadline_s: float
    stopping: Stopping | None

    def open(self) -> OpenAnswer:
        deadline = Deadline(max(self.deadline_s - time.monotonic(), 0.001))
        private = self.address.allow_private
        addresses = resolve_in_time(self.goal, deadline, allow_private=private, lookup=self.address.lookup)
        asked = replace(self.ask, headers={"Accept-Encoding": "identity", **self.ask.headers})
        answer = open_request(self.goal, addresses, asked, deadline=deadline, before_sending=self._check)
        crash_points.reached("llm.sent")
        if answer.status == 200:
            return answer
        try:
            raise _refusal(answer.status, answer.headers)
        finally:
            answer.close()

    def is_given_up(self) -> bool:
        return (self.stopping is not None and self.stopping.is_due) or self.request.is_given_up()

    def events(self, most_bytes: int) -> Iterator[Json]:
        """The JSON objects of an answer that streams; one that is an object itself is the only one."""
        with _Watched(self, most_bytes) as chunks:
            yield from events(_as_events(chunks), max_bytes=most_bytes)

    def body(self, most_bytes: int) -> bytes:
        """The whole answer; raises as ``events``."""
        with _Watched(self, most_bytes) as chunks:
            return b"".join(chunks)

    def _check(self) -> None:
        if not self.request.may_be_sent():
            raise Interrupted("The request was not sent: its session is deleted.")


class _Watched:
    """The chunks of an answer; what goes wrong with it is raised as Model.reply says."""

    def __init__(self, call: HttpCall, most_bytes: int) -> None:
        watch = call.request.watch
        self._timeout_s = call.address.timeout_s
        self._body = WatchedBody(call, deadline=call.deadline_s, max_bytes=most_bytes, watch=watch)

    def __enter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._body.close()
        match error:
            case TooLate():
                raise StreamBroken(f"The remote agent had no answer within {self._timeout_s:g} s.") from error
            case TooLong():
                raise ProviderFailed("The remote agent's answer is too large (LOOM_MAX_REPLY_BYTES).") from error
            case Invalid():
                raise ProviderFailed(f"The remote agent may not be called: {error}") from error
            case Transient() if not isinstance(error, Overloaded | StreamBroken):
                raise StreamBroken(f"The remote agent cannot be reached: {error}") from error


def _as_events(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks of a stream; an answer that is no stream, but one object of JSON, as the one event of a stream."""
    first = next(chunks, b"").lstrip()
    if first[:1] != b"{":
        yield first
        yield from chunks
        return
    yield b"data: " + b"".join([first, *chunks]).replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"


def _refusal(status: int, headers: Mapping[str, str]) -> LoomError:
    if status == 429 or status == 503:
        pause_s = retry_after_s(headers.get("Retry-After"), now_s=time.time())
        return Overloaded(f"The remote agent is busy (HTTP {status}).", pause_s)
    if status >= 500 or status in (408, 425):
        return StreamBroken(f"The remote agent failed (HTTP {status}).")
    advice = _ADVICE.get(status, "Redirects are not followed." if 300 <= status < 400 else "")
    return ProviderFailed(f"The remote agent refused the call (HTTP {status}). {advice}".strip())


def target_of(url: str, address: RemoteAddress) -> Target:
    """Where a URL leads; ProviderFailed: it may not be called."""
    try:
        return target(url, allow_private=address.allow_private)
    except Invalid as error:
        raise ProviderFailed(f"The remote agent may not be called at {url[:200]}: {error}") from error
