"""Amazon Bedrock's runtime on loopback: signed requests in, binary event-stream frames out.

Frames and signatures are made here from AWS' own descriptions, not with AWS' packages, which are what is tested.
"""

import base64
import hashlib
import hmac
import json
import re
import struct
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote
from zlib import crc32

import pytest

from tests.support.http_server import Exchange, serving
from tests.support.messages_server import Behaviour, Outgoing, Plain
from tests.support.messages_wire import WireCall, words

Json = dict[str, Any]

ACCESS_KEY = "AKIDEXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
PATH = re.compile(r"/model/([^/]+)/(invoke-with-response-stream|converse(?:-stream)?)")
AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>(?P<day>\d{8})/(?P<region>[\w-]+)/bedrock/aws4_request), "
    r"SignedHeaders=(?P<names>[\w;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message of the event-stream encoding: lengths, their CRC, headers, payload, the CRC of all before."""
    encoded = b"".join(_header(name, text) for name, text in headers.items())
    prelude = struct.pack("!II", 16 + len(encoded) + len(payload), len(encoded))
    message = prelude + struct.pack("!I", crc32(prelude)) + encoded + payload
    return message + struct.pack("!I", crc32(message))


def _header(name: str, text: str) -> bytes:
    return struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(text)) + text.encode()


def chunk(event: Json) -> bytes:
    """The frame of one event of the Messages API."""
    return raw_chunk(
        json.dumps({"bytes": base64.b64encode(json.dumps(event).encode()).decode(), "p": "abcdef"}).encode()
    )


def raw_chunk(payload: bytes) -> bytes:
    """The frame of a chunk with this payload."""
    headers = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, payload)


def exception(name: str, message: str) -> bytes:
    """The frame with which a stream fails that began with status 200."""
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, json.dumps({"message": message}).encode())


def frames(events: Iterable[Json]) -> bytes:
    """All events as one body."""
    return b"".join(chunk(event) for event in events)


def delta(index: int, **piece: object) -> Json:
    """An event of Converse: a piece of a block."""
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": piece}}


def conversed(
    text: str = "", calls: Sequence[WireCall] = (), *, thinking: str = "", stop: str | None = None, usage: Any = None
) -> list[Json]:
    """All events of a complete reply of Converse, each under its name; the signature of its thinking is ``signed``."""
    told: list[Json] = [{"messageStart": {"role": "assistant"}}]
    if thinking:
        told += [delta(0, reasoningContent={"text": thinking}), delta(0, reasoningContent={"signature": "signed"})]
        told += [{"contentBlockStop": {"contentBlockIndex": 0}}]
    if text:
        told += [delta(1, text=piece) for piece in words(text)] + [{"contentBlockStop": {"contentBlockIndex": 1}}]
    for n, call in enumerate(calls, 2):
        raw = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        opening = {"toolUse": {"toolUseId": call.id, "name": call.name}}
        told.append({"contentBlockStart": {"contentBlockIndex": n, "start": opening}})
        told += [delta(n, toolUse={"input": piece}) for piece in (raw[: len(raw) // 2], raw[len(raw) // 2 :])]
        told.append({"contentBlockStop": {"contentBlockIndex": n}})
    told.append({"messageStop": {"stopReason": stop or ("tool_use" if calls else "end_turn")}})
    counts = usage or {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    return [*told, {"metadata": {"usage": counts, "metrics": {"latencyMs": 5}}}]


def converse_frames(events: Iterable[Json]) -> bytes:
    """Events of Converse as one body; those that are exceptions fail the stream."""
    return b"".join(map(_converse_frame, events))


def _converse_frame(event: Json) -> bytes:
    (name, payload), *more = event.items()
    if name.endswith("Exception"):
        return exception(name, payload["message"])
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps({**payload, **dict(more), "p": "abcdefgh"}).encode())


def converse_complaint(body: Json) -> str:
    """What AWS' own description of the operation says against a body; empty: nothing."""
    service = import_module("botocore.session").get_session().get_service_model("bedrock-runtime")
    shape = service.operation_model("ConverseStream").input_shape
    report = import_module("botocore.validate").ParamValidator().validate({"modelId": "m", **body}, shape)
    return str(report.generate_report())


@dataclass(frozen=True)
class Frames:
    """A whole response of these bytes."""

    body: bytes

    def send(self, out: Outgoing) -> None:
        out.stream([self.body], headers={"content-type": "application/vnd.amazon.eventstream"})


def refusal(status: int, name: str, message: str) -> Plain:
    """An error as AWS answers it."""
    kind = f"{name}:http://internal.amazon.com/coral/com.amazon.bedrock/"
    return Plain(status, json.dumps({"message": message}).encode(), headers={"x-amzn-errortype": kind})


@dataclass
class BedrockServer:
    """The server, for ``with``; requests whose signature is wrong are answered 403."""

    requests: list[Json] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> Self:
        self._queue: deque[Behaviour] = deque()
        self._stopping = threading.Event()
        self._stack = ExitStack()
        self.url = self._stack.enter_context(serving(self._answer))
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._stack.close()

    def forget(self) -> None:
        """Begin anew."""
        for each in (self.requests, self.headers, self.paths, self._queue):
            each.clear()

    def then(self, *behaviours: Behaviour) -> None:
        """Queue more behaviours."""
        self._queue.extend(behaviours)

    def _answer(self, exchange: Exchange) -> None:
        raw = exchange.body()
        headers = {name.lower(): text for name, text in exchange.headers.items()}
        self.requests.append(json.loads(raw))
        self.headers.append(headers)
        self.paths.append(exchange.path)
        with suppress(ConnectionError):  # a client that hung up is no error of ours
            self._behaviour(exchange.path, headers, raw).send(Outgoing(exchange, self._stopping))

    def _behaviour(self, path: str, headers: Mapping[str, str], raw: bytes) -> Behaviour:
        called = PATH.fullmatch(path)
        if not called:
            return refusal(404, "UnknownOperationException", path)
        if not headers["authorization"].startswith("Bearer ") and not is_signed(path, headers, raw):
            return refusal(403, "InvalidSignatureException", "The request signature we calculated does not match")
        if called[2].startswith("converse") and (complaint := converse_complaint(json.loads(raw))):
            return refusal(400, "ValidationException", complaint)
        return self._queue.popleft()


def is_signed(path: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether a POST carries Signature Version 4 by SECRET_KEY."""
    found = AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if found is None or found["key"] != ACCESS_KEY:
        return False
    names = found["names"].split(";")
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in names]
    digest = hashlib.sha256(body).hexdigest()
    canonical = "\n".join(["POST", quote(path, safe="/~"), "", *lines, "", found["names"], digest])
    to_sign = [
        "AWS4-HMAC-SHA256",
        headers["x-amz-date"],
        found["scope"],
        hashlib.sha256(canonical.encode()).hexdigest(),
    ]
    key = b"AWS4" + SECRET_KEY.encode()
    for part in found["scope"].split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, "\n".join(to_sign).encode(), "sha256").hexdigest() == found["signature"]


def give_credentials(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let AWS' packages find credentials of the test's own, and none of the machine's."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    given = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-west-2",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(folder / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
