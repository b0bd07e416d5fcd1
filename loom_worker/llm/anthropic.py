"""The Anthropic adapter: Anthropic's own servers, or any server at another address that speaks the Messages API.

The official SDK provides credentials, addresses, proxies, the connection pool and typed errors. Its stream helper
(``messages.stream()``) is not used: if a stream is cut it ends early without an error (measured), it hides pings from
the deadline, unknown events and blocks need care, and a call takes twice the processor time (3.5 ms instead of 1.5 ms,
measured). Loom reads the bytes itself: ``response`` under the deadline, ``sse`` the events, ``anthropic_stream`` the
reply.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Unpack

from loom_worker.core.errors import LoomError, ProviderFailed
from loom_worker.core.values.chat import Request
from loom_worker.core.values.json import Json
from loom_worker.llm.anthropic_request import SHAPES, native_schema, request_body
from loom_worker.llm.anthropic_stream import MessageAssembly
from loom_worker.llm.assembly import Assembly
from loom_worker.llm.http_model import NO_KEY, CallOptions, HttpModel, ModelServer, without_others
from loom_worker.llm.prices import plain_name
from loom_worker.llm.provider_errors import ADVICE, IN_FILE
from loom_worker.llm.shaped import as_tool

if TYPE_CHECKING:
    import httpx2

    from loom_worker.llm.http_model import SdkClient

NO_CREDENTIALS = "There is no usable key for the model's provider: set ANTHROPIC_API_KEY."


class Anthropic(HttpModel):
    """A Model behind the Messages API; cheap to make, all with the same key and address share one client."""

    def __init__(
        self,
        *,
        model: str,
        api_key: str | None = None,
        base_url: str | None = None,
        in_file: bool = False,
        **options: Unpack[CallOptions],
    ) -> None:
        """Nothing is imported or connected before the first reply.

        Args:
            base_url: None: Anthropic's own. Other makers' addresses end in ``/v1``, which Loom adds itself.
            in_file: an agent's file names the address or the key.
        """
        address = re.sub(r"(?:/v1(?:/messages)?)?/*$", "", base_url) if base_url else None
        server = AnthropicServer(api_key or (NO_KEY if base_url else None), address, in_file)
        super().__init__(server, model=model, **options)


class MessagesServer(ModelServer):
    """Any server of the Messages API."""

    def formed(self, request: Request, model: str) -> Request:
        has_mode = SHAPES.match(plain_name(model)) and native_schema(request.shape) is not None
        return request if has_mode else as_tool(request)

    def body(self, request: Request, model: str) -> Json:
        return request_body(request, model)

    def path(self, body: Json) -> str:
        return "/v1/messages"

    def assembly(self, model: str, body: Json, *, max_bytes: int) -> Assembly:
        return MessageAssembly(model, max_bytes=max_bytes)


@dataclass(frozen=True, slots=True)
class AnthropicServer(MessagesServer):
    """Anthropic's own, or one at another address."""

    api_key: str | None = field(repr=False)
    base_url: str | None
    in_file: bool = False
    """An agent's file names its address or its key."""

    @property
    def advice(self) -> Mapping[int, str]:
        return IN_FILE if self.in_file else ADVICE

    @property
    def secret(self) -> str | None:
        """The API key, if there is one."""
        return self.api_key if self.api_key != NO_KEY else None

    def new_client(self, http_client: "httpx2.Client") -> "SdkClient":
        import anthropic

        if self.in_file:
            http_client.event_hooks["request"].append(without_others)
        client = anthropic.Anthropic(
            api_key=self.api_key, base_url=self.base_url, max_retries=0, http_client=http_client
        )
        if not (client.api_key or client.auth_token or client.credentials):
            raise ProviderFailed(NO_CREDENTIALS)
        return client

    def translated(self, error: Exception, model: str) -> LoomError | None:
        import anthropic

        return ProviderFailed(NO_CREDENTIALS) if isinstance(error, anthropic.CredentialsError) else None
