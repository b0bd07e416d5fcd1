"""The Bedrock adapter: models of the user's own AWS account, through the SDK's Bedrock client.

Requests are signed by AWS' own packages (the extra ``bedrock``) with whatever credentials they find; the events of the
stream arrive in binary frames with checksums. AWS has its own names for errors, over HTTP and in frames. Claude is
asked by the Messages API, whose events are base64-encoded within those frames, all other models by Converse.
https://docs.aws.amazon.com/bedrock/latest/userguide/inference-messages-api.html
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Unpack
from urllib.parse import quote

from loom_worker.core.errors import BadSettings, LoomError, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import ReplyEvent, Request
from loom_worker.core.values.json import Json
from loom_worker.llm.anthropic import MessagesServer
from loom_worker.llm.anthropic_request import native_schema, request_body
from loom_worker.llm.assembly import INCOMPLETE, ErrorEvent
from loom_worker.llm.converse import converse_body, family_of, message_events, whole_message
from loom_worker.llm.http_model import CallOptions, HttpModel, ModelServer
from loom_worker.llm.provider_errors import ADVICE, safe_detail
from loom_worker.llm.response import MALFORMED, TooLong
from loom_worker.llm.shaped import as_tool
from loom_worker.llm.sse import json_object

if TYPE_CHECKING:
    import httpx2

    from loom_worker.llm.http_model import SdkClient

VERSION = "bedrock-2023-05-31"
"""The only ``anthropic_version`` that all of Bedrock's models accept; most of them refuse the SDK's default."""
PACKAGES = ("boto3", "botocore")
NO_PACKAGES = "provider bedrock needs AWS' packages: pip install boto3"
CLAUDE = re.compile(r"(?:\A|[./])(?:anthropic\.|claude)")
UNNAMED = re.compile(r"\Aarn:.*/[^/.]*\Z")
"""ARNs that name no model. They are taken for Claude's until Bedrock says otherwise: only the Messages API tells the
model that answers, so that it has a price."""
NOT_CLAUDES = re.compile(r"anthropic_version|malformed input request", re.IGNORECASE)
"""Bedrock's words about a request of the Messages API for another model."""
NO_STREAM = re.compile(r"tool use in streaming", re.IGNORECASE)
NO_REGION = "Bedrock needs a region: set AWS_REGION, or region in the AWS profile."
NO_CREDENTIALS = "There are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."


class Bedrock(HttpModel):
    """A Model that Bedrock runs, by its id, inference profile or ARN there."""

    def __init__(
        self, *, model: str, region: str | None = None, base_url: str | None = None, **options: Unpack[CallOptions]
    ) -> None:
        """Nothing is imported or connected before the first reply; AWS' packages read their own settings then.

        Args:
            region: None: as AWS' own settings say.
            base_url: None: the region's own; otherwise a VPC endpoint, for example.

        Raises:
            BadSettings: AWS' packages are not installed.
        """
        if any(find_spec(name) is None for name in PACKAGES):
            raise BadSettings(NO_PACKAGES)
        claude = BedrockServer(region, base_url)
        is_claude = CLAUDE.search(model) or UNNAMED.search(model)
        super().__init__(claude if is_claude else claude.converse(model), model=model, **options)

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """A model that takes another form than its name lets expect is asked in that one, from then on."""
        try:
            yield from super().reply(request)
        except ProviderFailed as error:
            server = self._server
            other = server.other_form(self._model, str(error)) if isinstance(server, BedrockServer) else None
            if other is None:
                raise
            self._server = other
            yield from super().reply(request)


@dataclass(frozen=True, slots=True)
class BedrockServer(MessagesServer):
    """Bedrock's runtime in one region."""

    region: str | None
    base_url: str | None

    reads_body = True  # it finds the address in it, and signs it
    advice = ADVICE | {
        401: "The AWS credentials are not valid.",
        403: "The AWS credentials are not valid (any more), or may not call this model: see its access in the console.",
        404: "There is no model {model!r} in this region: set LOOM_MODEL or AWS_REGION.",
    }

    @property
    def bad_address(self) -> str:
        return "The address of Bedrock is no URL: set ANTHROPIC_BEDROCK_BASE_URL."

    @property
    def unreachable(self) -> str:
        return "The connection to Bedrock failed"

    def converse(self, model: str) -> "ConverseServer":
        """The same for a model that is not Claude."""
        return ConverseServer(self.region, self.base_url, model, family_of(model).streams_calls)

    def other_form(self, model: str, refusal: str) -> "ConverseServer | None":
        """What to ask after a refusal in these words; None: nothing else."""
        return self.converse(model) if UNNAMED.search(model) and NOT_CLAUDES.search(refusal) else None

    def new_client(self, http_client: "httpx2.Client") -> "SdkClient":
        import anthropic

        try:
            client = anthropic.AnthropicBedrock(
                aws_region=self.region, base_url=self.base_url, max_retries=0, http_client=http_client
            )
        except ValueError as error:
            raise ProviderFailed(NO_REGION) from error
        # The SDK finds out at the first request only, and raises a bare RuntimeError then.
        if (
            client.api_key is None
            and import_module("boto3").Session(region_name=client.aws_region).get_credentials() is None
        ):
            raise ProviderFailed(NO_CREDENTIALS)
        return client

    def body(self, request: Request, model: str) -> Json:
        return {"anthropic_version": VERSION} | request_body(request, model)

    def events(self, chunks: Iterable[bytes], *, max_bytes: int) -> Iterator[Json]:
        for name, payload in _frames(chunks, max_bytes):
            if name == "chunk":
                try:
                    event = base64.b64decode(str(json_object(payload).get("bytes")), validate=True)
                except ValueError as error:
                    raise StreamBroken(MALFORMED) from error
                yield json_object(event)

    def failures(self) -> tuple[type[Exception], ...]:
        return (*ModelServer.failures(self), import_module("botocore.exceptions").BotoCoreError)

    def translated(self, error: Exception, model: str) -> LoomError | None:
        if isinstance(error, import_module("botocore.exceptions").BotoCoreError):
            # An expired login is renewed while the turn waits.
            return StreamBroken(f"AWS gives no credentials. {safe_detail(str(error), None)}")
        return None


@dataclass(frozen=True, slots=True)
class ConverseServer(BedrockServer):
    """The same runtime for one model that is not Claude."""

    model: str
    streams_calls: bool

    reads_body = False

    def other_form(self, model: str, refusal: str) -> "ConverseServer | None":
        return replace(self, streams_calls=False) if self.streams_calls and NO_STREAM.search(refusal) else None

    def formed(self, request: Request, model: str) -> Request:
        has_mode = family_of(model).has_shapes and native_schema(request.shape) is not None
        return request if has_mode else as_tool(request)

    def body(self, request: Request, model: str) -> Json:
        return converse_body(request, model)

    def path(self, body: Json) -> str:
        operation = "converse-stream" if self.streams_calls or "toolConfig" not in body else "converse"
        return f"/model/{quote(self.model, safe=':')}/{operation}"

    def events(self, chunks: Iterable[bytes], *, max_bytes: int) -> Iterator[Json]:
        rest = iter(chunks)
        first = next(rest, b"")
        whole = chain((first,), rest)
        if first[:1] == b"{":  # no stream: a frame begins with its length, whose first byte is 0
            yield whole_message(json_object(b"".join(whole)))
            return
        frames = _frames(whole, max_bytes)
        yield from message_events((name, json_object(payload)) for name, payload in frames)


def _frames(chunks: Iterable[bytes], max_bytes: int) -> Iterator[tuple[str, bytes]]:
    """The frames of a body: the kind of each event, and its payload.

    Raises:
        ErrorEvent, TooLong: as ``ModelServer.events`` says.
        StreamBroken: one is damaged, or the body ends within one.
    """
    eventstream = import_module("botocore.eventstream")
    buffer = eventstream.EventStreamBuffer()
    waiting_bytes = 0
    try:
        for chunk in chunks:
            buffer.add_data(chunk)
            waiting_bytes += len(chunk)
            for frame in buffer:
                waiting_bytes -= frame.prelude.total_length
                yield from _event(frame.headers, frame.payload)
            if waiting_bytes > 2 * max_bytes:  # base64 is a third longer than what it holds
                raise TooLong(f"more than {2 * max_bytes} bytes in one frame")
    except eventstream.ParserError as error:
        raise StreamBroken(MALFORMED) from error
    if waiting_bytes:
        raise StreamBroken(INCOMPLETE)


def _event(headers: Mapping[str, object], payload: bytes) -> Iterator[tuple[str, bytes]]:
    """The event of a frame; nothing if it holds none."""
    kind = headers.get(":message-type")
    if kind == "exception":
        name = str(headers.get(":exception-type"))
        raise ErrorEvent({"type": name, "message": json_object(payload).get("message")})
    if kind == "error":
        raise ErrorEvent({"type": "api_error", "message": headers.get(":error-message")})
    if kind == "event":
        yield str(headers.get(":event-type")), payload
