"""The Bedrock adapter: Claude models of the user's own AWS account, through the SDK's Bedrock client.

The request is the Messages API's, signed by AWS' own packages (the extra ``bedrock``) with whatever credentials they
find; the events of the stream arrive base64-encoded in binary frames with checksums. AWS has its own names for errors,
over HTTP and in frames.
https://docs.aws.amazon.com/bedrock/latest/userguide/inference-messages-api.html
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Unpack

from loom_worker.core.errors import BadSettings, LoomError, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import Request
from loom_worker.core.values.json import Json
from loom_worker.llm.anthropic import MessagesServer
from loom_worker.llm.anthropic_request import request_body
from loom_worker.llm.assembly import ErrorEvent
from loom_worker.llm.http_model import CallOptions, HttpModel, ModelServer
from loom_worker.llm.provider_errors import ADVICE, safe_detail
from loom_worker.llm.response import MALFORMED, TooLong
from loom_worker.llm.sse import json_object

if TYPE_CHECKING:
    import httpx2

    from loom_worker.llm.http_model import SdkClient

VERSION = "bedrock-2023-05-31"
"""The only ``anthropic_version`` that all of Bedrock's models accept; most of them refuse the SDK's default."""
PACKAGES = ("boto3", "botocore")
NO_PACKAGES = "provider bedrock needs AWS' packages: pip install boto3"
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
        super().__init__(BedrockServer(region, base_url), model=model, **options)


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
        eventstream = import_module("botocore.eventstream")
        buffer = eventstream.EventStreamBuffer()
        waiting_bytes = 0
        try:
            for chunk in chunks:
                buffer.add_data(chunk)
                waiting_bytes += len(chunk)
                for frame in buffer:
                    waiting_bytes = 0
                    yield from _events(frame.headers, frame.payload)
                if waiting_bytes > 2 * max_bytes:  # of base64, which is a third longer than what it holds
                    raise TooLong(f"more than {2 * max_bytes} bytes in one frame")
        except eventstream.ParserError as error:
            raise StreamBroken(MALFORMED) from error

    def failures(self) -> tuple[type[Exception], ...]:
        return (*ModelServer.failures(self), import_module("botocore.exceptions").BotoCoreError)

    def translated(self, error: Exception, model: str) -> LoomError | None:
        if isinstance(error, import_module("botocore.exceptions").BotoCoreError):
            # An expired login is renewed while the turn waits.
            return StreamBroken(f"AWS gives no credentials. {safe_detail(str(error), None)}")
        return None


def _events(headers: Mapping[str, object], payload: bytes) -> Iterator[Json]:
    """What one frame holds: usually an event, nothing if its kind is not known here."""
    kind = headers.get(":message-type")
    if kind == "exception":
        name = str(headers.get(":exception-type"))
        raise ErrorEvent({"type": name, "message": json_object(payload).get("message")})
    if kind == "error":
        raise ErrorEvent({"type": "api_error", "message": headers.get(":error-message")})
    if headers.get(":event-type") == "chunk":
        try:
            event = base64.b64decode(str(json_object(payload).get("bytes")), validate=True)
        except ValueError as error:
            raise StreamBroken(MALFORMED) from error
        yield json_object(event)
