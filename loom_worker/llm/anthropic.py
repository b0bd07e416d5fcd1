"""The Anthropic adapter: its own servers, or any server of one's own that speaks the Messages API."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from loom_worker.core.errors import LoomError, ProviderFailed
from loom_worker.llm.anthropic_stream import MAX_REPLY_BYTES
from loom_worker.llm.messages import CALL_TIMEOUT_S, NO_KEY, MessagesModel, Server, shared_client
from loom_worker.llm.response import bounded_client

if TYPE_CHECKING:
    from anthropic._base_client import SyncAPIClient

NO_CREDENTIALS = "There is no usable key for the model's provider: set ANTHROPIC_API_KEY."


class Anthropic(MessagesModel):
    """A Model behind the Messages API; cheap to make, all with the same key and address share one client."""

    def __init__(
        self,
        *,
        model: str,
        api_key: str | None = None,
        base_url: str | None = None,
        call_timeout_s: float = CALL_TIMEOUT_S,
        is_stopping: Callable[[], bool] = lambda: False,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        """Nothing is imported or connected before the first reply.

        Args:
            base_url: None: Anthropic's own.
            model, call_timeout_s, is_stopping, max_reply_bytes: see MessagesModel.
        """
        server = AnthropicServer(api_key or (NO_KEY if base_url else None), base_url)
        super().__init__(
            server,
            model=model,
            call_timeout_s=call_timeout_s,
            is_stopping=is_stopping,
            max_reply_bytes=max_reply_bytes,
        )


class AnthropicServer(Server):
    """Anthropic's own, or one at another address."""

    def __init__(self, api_key: str | None, base_url: str | None) -> None:
        self._api_key = api_key
        self._base_url = base_url

    @property
    def secret(self) -> str | None:
        """The API key, if there is one."""
        return self._api_key if self._api_key != NO_KEY else None

    def client(self) -> "SyncAPIClient":
        """See Server.client."""
        return shared_client(_build, self._api_key, self._base_url)

    def translated(self, error: Exception, model: str) -> LoomError | None:
        """See Server.translated."""
        import anthropic

        return ProviderFailed(NO_CREDENTIALS) if isinstance(error, anthropic.CredentialsError) else None


def _build(api_key: str | None, base_url: str | None) -> "SyncAPIClient":
    import anthropic

    client = anthropic.Anthropic(api_key=api_key, base_url=base_url, max_retries=0, http_client=bounded_client())
    if not (client.api_key or client.auth_token or client.credentials):
        raise ProviderFailed(NO_CREDENTIALS)
    return client
