"""A call of any server that speaks the Messages API, through the official SDK.

The SDK gives credentials, addresses, proxies, connection pool and typed errors. The stream is read here, byte by
byte, since the SDK's own reading ends early without an error when a stream is cut (measured), hides pings from a
deadline, and costs twice the processor time. What is special about one server is in its ``Server``; this is the only
file that knows the errors which the SDK and its HTTP client share among all of them.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from loom_worker.core import crash_points
from loom_worker.core.errors import Interrupted, LoomError, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import Reply, ReplyEvent, Request, TextDelta
from loom_worker.core.values.json import Json
from loom_worker.llm.anthropic_errors import ADVICE, Refused, refusal
from loom_worker.llm.anthropic_request import request_body
from loom_worker.llm.anthropic_stream import MAX_REPLY_BYTES, Assembly, ErrorEvent
from loom_worker.llm.arguments import flaw_of
from loom_worker.llm.model import NotSent
from loom_worker.llm.prices import with_cost
from loom_worker.llm.response import PLAIN, Response
from loom_worker.llm.sse import events
from loom_worker.llm.watched import TooLate, TooLong, WatchedBody

if TYPE_CHECKING:
    from anthropic._base_client import SyncAPIClient

NO_KEY = "no-key"
"""Sent where a server of one's own needs no key; the SDK refuses to send none."""
CONNECT_S = 10.0
"""Longest wait for a connection to one address."""
DRAIN_S = 0.25
"""How long the end of a response may take after its last event; then the connection is dropped, not reused."""
CALL_TIMEOUT_S = 120.0
EVENT_SLACK_BYTES = 64 * 1024
"""What one event may have around a whole reply. Twice the reply's bytes and this is the longest event: JSON writes
quotes, line breaks and letters beyond ASCII longer than they are."""

_building = threading.Lock()
_sending = threading.local()
"""``may_be_sent`` of the call that a thread makes."""
_clients: dict[tuple[object, ...], "SyncAPIClient"] = {}


class Server(ABC):
    """One kind of server of the Messages API; what is not overridden is as Anthropic's own."""

    advice: ClassVar[Mapping[int, str]] = ADVICE
    """What to do about a refusal, by its status; ``{model}`` stands for the model's name."""
    bad_address = "The address of the model's provider is no URL: set ANTHROPIC_BASE_URL."
    unreachable = "The connection to the model's provider failed"

    @property
    def secret(self) -> str | None:
        """A key to be kept out of all texts."""
        return None

    @abstractmethod
    def client(self) -> "SyncAPIClient":
        """The SDK's client, the same for every call.

        Raises:
            ProviderFailed: it cannot be made, for want of a key, say.
        """

    def body(self, request: Request, model: str) -> Json:
        """The JSON body of ``POST /v1/messages``."""
        return request_body(request, model)

    def events(self, chunks: Iterable[bytes], *, max_bytes: int) -> Iterator[Json]:
        """The events in a response's body.

        Args:
            max_bytes: of one event.

        Raises:
            StreamBroken: it is malformed.
            ErrorEvent: it says that the call failed.
            TooLong: an event is longer than it may be.
        """
        return events(chunks, max_bytes=max_bytes)

    def finished(self, reply: Reply, body: Json) -> Reply:
        """A complete reply to a request's body, as the rest of Loom shall have it: with its price."""
        return with_cost(reply)

    def refused(self, refused: Refused) -> Refused:
        """A refusal in the API's own terms."""
        return refused

    def failures(self) -> tuple[type[Exception], ...]:
        """What a call may raise here beside what it may with every server."""
        return ()

    def translated(self, error: Exception, model: str) -> LoomError | None:
        """What only this server's errors mean; None for all that are as Anthropic's."""
        return None


class MessagesModel:
    """A Model behind the Messages API."""

    def __init__(
        self,
        server: Server,
        *,
        model: str,
        call_timeout_s: float,
        is_stopping: Callable[[], bool],
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        """Nothing is imported or connected before the first reply.

        Args:
            model: as the provider names it.
            call_timeout_s: total deadline of one call, from its first byte out to its last event in.
            is_stopping: asked several times a second during a call; True ends it with Interrupted.
            max_reply_bytes: of text, thinking and tool arguments; a longer reply is cut there.
        """
        self._server = server
        self._max_reply_bytes = max_reply_bytes
        self._model = model
        self._call_timeout_s = call_timeout_s
        self._is_stopping = is_stopping

    @property
    def name(self) -> str:
        """The model that is asked."""
        return self._model

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """See Model.reply."""
        deadline = time.monotonic() + self._call_timeout_s
        body = self._server.body(request, self._model)
        request.watch.asked()
        watched = WatchedBody(
            lambda: self._open(body, request.may_be_sent),
            deadline=deadline,
            is_stopping=lambda: self._is_stopping() or request.is_given_up(),
            watch=request.watch,
        )
        try:
            yield from self._read(watched, body)
        except (*_failures(), *self._server.failures()) as error:
            raise self._translated(error) from error
        finally:
            watched.close()

    def _read(self, watched: WatchedBody, body: Json) -> Iterator[ReplyEvent]:
        assembly = Assembly(self._model, max_bytes=self._max_reply_bytes)
        try:
            yield from self._deltas(watched, assembly)
        except TooLong:  # a stream that is longer than any reply, or one event that is: what came before it stands
            assembly.is_too_large = True
        reply = self._server.finished(assembly.reply(), body)
        if not assembly.is_too_large:
            watched.finish_by(time.monotonic() + DRAIN_S)
        yield reply

    def _deltas(self, watched: WatchedBody, assembly: Assembly) -> Iterator[ReplyEvent]:
        for event in self._server.events(watched, max_bytes=2 * self._max_reply_bytes + EVENT_SLACK_BYTES):
            if text := assembly.feed(event):
                yield TextDelta(text)
            if assembly.is_complete or assembly.is_too_large:
                return

    def _open(self, body: Json, may_be_sent: Callable[[], bool]) -> Response:
        import anthropic

        _sending.may_be_sent = may_be_sent  # for the client's hook, which runs in this thread
        timeout = anthropic.Timeout(self._call_timeout_s, connect=min(CONNECT_S, self._call_timeout_s))
        # post() rather than messages.create(): the body is built here, and deprecated model names do not warn.
        try:
            stream = self._server.client().post(
                "/v1/messages",
                body=body,
                cast_to=object,
                options={"timeout": timeout, "headers": PLAIN},
                stream=True,
                stream_cls=anthropic.Stream[object],
            )
        except (TypeError, ValueError, RecursionError) as error:  # looked at only now: to write it twice takes time
            if (flaw := flaw_of(body)) is None:
                raise
            raise NotSent(f"The request cannot be written as JSON, so it was not sent: {flaw[:100]}") from error
        crash_points.reached("llm.sent")
        return Response(stream)

    def _translated(self, error: Exception) -> LoomError:
        import anthropic
        import httpx2

        cause = error.__cause__ or error
        if isinstance(cause, Interrupted):
            return cause
        if own := self._server.translated(error, self._model):
            return own
        if isinstance(error, TooLate):
            limit = f"{self._call_timeout_s:g} s (LOOM_LLM_TIMEOUT_S)"
            return StreamBroken(f"The model's reply was not complete after {limit}.")
        if isinstance(error, ErrorEvent):
            return self._refusal(Refused(200, kind=error.args[0], message=error.args[1]))
        if isinstance(error, anthropic.APIStatusError):
            kind, message = kind_and_message(error.body)
            return self._refusal(Refused(error.status_code, kind, message, error.response.headers))
        if isinstance(cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
            return ProviderFailed(self._server.bad_address)
        return StreamBroken(f"{self._server.unreachable} ({type(cause).__name__}).")

    def _refusal(self, refused: Refused) -> LoomError:
        server = self._server
        known = server.refused(refused)
        return refusal(known, model=self._model, now_s=time.time(), secret=server.secret, advice=server.advice)


def shared_client(build: Callable[..., "SyncAPIClient"], *args: str | None) -> "SyncAPIClient":
    """The client that this process built from these arguments before, or a new one."""
    # The process id is in the key because a forked child must not share its parent's connections.
    key = (build, args, os.getpid())
    with _building:
        if key not in _clients:
            _clients[key] = client = build(*args)
            # Only the HTTP client knows when a connection is made: one that takes seconds must not outlive a deletion.
            hooks = client._client.event_hooks
            client._client.event_hooks = {**hooks, "request": [_ask_before_sending]}
        return _clients[key]


def _ask_before_sending(request: Any) -> None:
    may_be_sent: Callable[[], bool] | None = getattr(_sending, "may_be_sent", None)

    def trace(name: str, _info: object) -> None:
        if name.endswith("send_request_headers.started") and may_be_sent is not None and not may_be_sent():
            raise Interrupted("The request was not sent: what it speaks of is gone.")

    request.extensions["trace"] = trace


def _failures() -> tuple[type[Exception], ...]:
    import anthropic
    import httpx2

    ours = (TooLate, ErrorEvent)
    theirs = (anthropic.AnthropicError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL)
    return (*ours, *theirs, OSError, ValueError, AssertionError)


def kind_and_message(body: Any) -> tuple[str, str]:
    """The error's type and text; servers of one's own put a plain text where the API has an object."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        return str(error.get("type") or ""), str(error.get("message") or "")
    return "", error if isinstance(error, str) else ""
