"""The Anthropic adapter: any server that speaks the Messages API, through the official SDK.

The SDK gives credentials, addresses, proxies, connection pool and typed errors. The stream is read here, byte by
byte, since the SDK's own reading ends early without an error when a stream is cut (measured), hides pings from a
deadline, and costs twice the processor time. This is the only file that knows the SDK's and its HTTP client's errors.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loom_worker import crash_points
from loom_worker.errors import LoomError, ProviderFailed, StreamBroken
from loom_worker.llm.anthropic_errors import Refused, refusal
from loom_worker.llm.anthropic_request import request_body
from loom_worker.llm.anthropic_stream import Assembly, ErrorEvent
from loom_worker.llm.prices import with_cost
from loom_worker.llm.sse import events
from loom_worker.llm.watched import TooLate, TooLong, WatchedBody
from loom_worker.values.chat import ReplyEvent, Request, TextDelta
from loom_worker.values.json import Json

if TYPE_CHECKING:
    import anthropic

NO_KEY = "no-key"
"""Sent where a server of one's own needs no key; the SDK refuses to send none."""
NO_CREDENTIALS = "There is no usable key for the model's provider: set ANTHROPIC_API_KEY."
CONNECT_S = 10.0
"""Longest wait for a connection to one address."""
DRAIN_S = 0.25
"""How long the end of a response may take after its last event; then the connection is dropped, not reused."""

_building = threading.Lock()
_clients: dict[tuple[str | None, str | None, int], "anthropic.Anthropic"] = {}


class Anthropic:
    """A Model behind the Messages API; cheap to make, all with the same key and address share one client."""

    def __init__(
        self,
        *,
        model: str,
        api_key: str | None = None,
        base_url: str | None = None,
        call_timeout_s: float = 120.0,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Nothing is imported or connected before the first reply.

        Args:
            model: as the provider names it.
            base_url: None: Anthropic's own.
            call_timeout_s: total deadline of one call, from its first byte out to its last event in.
            is_stopping: asked several times a second during a call; True ends it with Interrupted.
        """
        self._model = model
        self._api_key = api_key or (NO_KEY if base_url else None)
        self._base_url = base_url
        self._call_timeout_s = call_timeout_s
        self._is_stopping = is_stopping

    @property
    def name(self) -> str:
        """The model that is asked."""
        return self._model

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """See Model.reply."""
        deadline = time.monotonic() + self._call_timeout_s
        body = request_body(request, self._model)
        watched = WatchedBody(
            lambda: self._open(body),
            deadline=deadline,
            is_stopping=lambda: self._is_stopping() or request.is_given_up(),
        )
        try:
            yield from self._read(watched)
        except _failures() as error:
            raise self._translated(error) from error
        finally:
            watched.close()

    def _read(self, watched: WatchedBody) -> Iterator[ReplyEvent]:
        assembly = Assembly(self._model)
        for event in events(watched):
            if text := assembly.feed(event):
                yield TextDelta(text)
            if assembly.is_complete:
                break
        reply = with_cost(assembly.reply())
        watched.finish_by(time.monotonic() + DRAIN_S)
        yield reply

    def _open(self, body: Json) -> "_Response":
        import anthropic

        timeout = anthropic.Timeout(self._call_timeout_s, connect=min(CONNECT_S, self._call_timeout_s))
        client = _client(self._api_key, self._base_url)
        # post() rather than messages.create(): the body is built here, and deprecated model names do not warn.
        stream = client.post(
            "/v1/messages",
            body=body,
            cast_to=object,
            options={"timeout": timeout},
            stream=True,
            stream_cls=anthropic.Stream[object],
        )
        crash_points.reached("llm.sent")
        return _Response(stream)

    def _translated(self, error: Exception) -> LoomError:
        import anthropic
        import httpx2

        cause = error.__cause__ or error
        if isinstance(error, TooLate):
            limit = f"{self._call_timeout_s:g} s (LOOM_LLM_TIMEOUT_S)"
            return StreamBroken(f"The model's reply was not complete after {limit}.")
        if isinstance(error, ErrorEvent):
            return self._refusal(Refused(200, kind=error.args[0], message=error.args[1]))
        if isinstance(error, anthropic.APIStatusError):
            kind, message = _kind_and_message(error.body)
            return self._refusal(Refused(error.status_code, kind, message, error.response.headers))
        if isinstance(error, anthropic.CredentialsError):
            return ProviderFailed(NO_CREDENTIALS)
        if isinstance(cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
            return ProviderFailed("The address of the model's provider is no URL: set ANTHROPIC_BASE_URL.")
        return StreamBroken(f"The connection to the model's provider failed ({type(cause).__name__}).")

    def _refusal(self, refused: Refused) -> LoomError:
        secret = self._api_key if self._api_key != NO_KEY else None
        return refusal(refused, model=self._model, now_s=time.time(), secret=secret)


@dataclass(frozen=True, slots=True)
class _Response:
    """An open response of the SDK's, as WatchedBody wants it."""

    stream: "anthropic.Stream[object]"

    def chunks(self) -> Iterator[bytes]:
        return self.stream.response.iter_bytes()

    def close(self) -> None:
        self.stream.close()

    def hang_up(self) -> None:
        # Closing a socket does not wake a thread that reads from it, shutting it down does. SSLSocket's own method
        # would take the TLS object away from under that thread.
        network = self.stream.response.extensions.get("network_stream")
        connection = network.get_extra_info("socket") if network else None
        if isinstance(connection, socket.socket):
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _client(api_key: str | None, base_url: str | None) -> "anthropic.Anthropic":
    import anthropic

    # The process id is in the key because a forked child must not share its parent's connections.
    key = (api_key, base_url, os.getpid())
    with _building:
        if key not in _clients:
            client = anthropic.Anthropic(api_key=api_key, base_url=base_url, max_retries=0)
            if not (client.api_key or client.auth_token or client.credentials):
                raise ProviderFailed(NO_CREDENTIALS)
            _clients[key] = client
        return _clients[key]


def _failures() -> tuple[type[Exception], ...]:
    import anthropic
    import httpx2

    ours = (TooLate, TooLong, ErrorEvent)
    theirs = (anthropic.AnthropicError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL)
    return (*ours, *theirs, OSError, ValueError, AssertionError)


def _kind_and_message(body: Any) -> tuple[str, str]:
    """The error's type and text; servers of one's own put a plain text where the API has an object."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        return str(error.get("type") or ""), str(error.get("message") or "")
    return "", error if isinstance(error, str) else ""
