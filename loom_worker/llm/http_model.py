"""A call of any server through the SDK of a maker, Anthropic's or OpenAI's, which have one generator and one form.

The special traits of a kind of server are in its ``ModelServer``; this is the only file that knows the errors which the
SDKs and their HTTP client share among all of them. The docstring of ``anthropic`` says why the stream is read here, and
not by the SDK.
"""

import json
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from loom_worker.core import crash_points
from loom_worker.core.errors import Interrupted, LoomError, PromptTooLong, ProviderFailed, StreamBroken, Unreached
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import Reply, ReplyEvent, Request, Restarted, Watch
from loom_worker.core.values.json import Json
from loom_worker.llm.assembly import MAX_REPLY_BYTES, Assembly, ErrorEvent
from loom_worker.llm.catalog import MEDIA
from loom_worker.llm.conversation import proofs, without_thinking, without_what_is_refused
from loom_worker.llm.media import without_media
from loom_worker.llm.model import NotSent
from loom_worker.llm.prices import with_cost
from loom_worker.llm.provider_errors import ADVICE, ErrorResponse, is_refusal, read_error, translated
from loom_worker.llm.response import PLAIN, Response, TooLate, TooLong, WatchedBody, bounded_client
from loom_worker.llm.sanitize import json_error
from loom_worker.llm.shaped import as_tool, from_tool_events
from loom_worker.llm.sse import events

if TYPE_CHECKING:
    import anthropic
    import httpx2
    import openai

    SdkClient = anthropic.Anthropic | anthropic.AnthropicBedrock | openai.OpenAI

log = logging.getLogger(__name__)

HEADERS = frozenset(
    "host accept accept-encoding connection content-type content-length user-agent authorization x-api-key".split()
)
"""All that is sent to an address of an agent's file, beside the SDK's own ``x-stainless-…`` and ``anthropic-…``."""
NO_KEY = "no-key"
"""Sent to a self-hosted server that needs no key; the SDK refuses to send none."""
CONNECT_S = 10.0
"""Longest wait for a connection to one address."""
DRAIN_S = 0.25
"""How long the end of a response may take after its last event; then the connection is dropped, not reused."""
CALL_TIMEOUT_S = 120.0
EVENT_SLACK_BYTES = 64 * 1024
"""Bytes of an event in addition to a whole reply. The longest event is twice the reply's bytes plus this, because JSON
escapes quotes, line breaks and letters beyond ASCII."""
MOST_REFUSED = 10_000

_building = threading.Lock()
_sending = threading.local()
"""``may_be_sent`` of the call that a thread makes."""
_refused: dict[str, None] = {}
"""Signatures of thinking that a provider refused, the latest last."""
_clients: dict[tuple["ModelServer", int], "SdkClient"] = {}


class ModelServer(ABC):
    """One kind of server; a subclass is a frozen dataclass of its settings.

    What is not overridden is as on Anthropic's own servers.
    """

    sdk: ClassVar[str] = "anthropic"
    """The package whose client calls it."""
    reads_body: ClassVar[bool] = False
    """True: the SDK's client must see the body as a mapping. It then copies it node by node, which took 18 % of a
    worker's time (measured); else it is given the bytes."""

    @property
    def advice(self) -> Mapping[int, str]:
        """What to do about an error, by its status; ``{model}`` stands for the model's name."""
        return ADVICE

    def named(self, model: str) -> str:
        """A model's name inside Loom."""
        return model

    @property
    def bad_address(self) -> str:
        """The error's text if the address is no URL."""
        return "The address of the model's provider is no URL: set ANTHROPIC_BASE_URL."

    @property
    def unreachable(self) -> str:
        """The error's text if the connection failed."""
        return "The connection to the model's provider failed"

    @property
    def secret(self) -> str | None:
        """A key that must not show in any text."""
        return None

    @abstractmethod
    def new_client(self, http_client: "httpx2.Client") -> "SdkClient":
        """A client of the SDK; ProviderFailed: it cannot be made, for example for lack of a key."""

    def client(self) -> "SdkClient":
        """The client that this process made for the same settings before, or a new one; raises as new_client."""
        # The process id is in the key because a forked child must not share its parent's connections.
        key = (self, os.getpid())
        with _building:
            if key not in _clients:
                # Only the HTTP client knows when a connection is made, which may take seconds: the session may be
                # deleted meanwhile.
                _clients[key] = self.new_client(bounded_client(before_sending=_ask_before_sending))
            return _clients[key]

    def formed(self, request: Request, model: str) -> Request:
        """The request with a tool in place of a shape that the server cannot enforce."""
        return as_tool(request)

    @abstractmethod
    def body(self, request: Request, model: str) -> Json:
        """The JSON body of a request."""

    @abstractmethod
    def path(self, body: Json) -> str:
        """Where a body is posted to, below the client's address."""

    @abstractmethod
    def assembly(self, model: str, body: Json, *, max_bytes: int) -> Assembly:
        """What puts the reply to a body together; model as the provider names it."""

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
        """A complete reply to a request's body, as the rest of Loom gets it: with its price."""
        return with_cost(reply)

    def failures(self) -> tuple[type[Exception], ...]:
        """What a call may raise."""
        import httpx2

        own = _sdk_errors(self.sdk)
        theirs = (*own, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL)
        return (TooLate, ErrorEvent, *theirs, OSError, ValueError, AssertionError)

    def translated(self, error: Exception, model: str) -> LoomError | None:
        """What an error of this server alone means; None for all that mean the same as Anthropic's."""
        return None


def _sdk_errors(sdk: str) -> tuple[type[Exception], ...]:
    if sdk == "openai":
        import openai

        return (openai.OpenAIError,)
    import anthropic

    return (anthropic.AnthropicError,)


def without_others(request: "httpx2.Request") -> None:
    """Leave out what the SDK adds from variables for its maker's address, such as ANTHROPIC_CUSTOM_HEADERS."""
    for name in list(request.headers):
        if name not in HEADERS and not name.startswith(("x-stainless-", "anthropic-")):
            del request.headers[name]


def _ask_before_sending(request: Any) -> None:
    may_be_sent: Callable[[], bool] | None = getattr(_sending, "may_be_sent", None)

    def trace(name: str, _info: object) -> None:
        if name.endswith("send_request_headers.started") and may_be_sent is not None and not may_be_sent():
            raise Interrupted("The request was not sent: its session is deleted.")

    request.extensions["trace"] = trace


class CallOptions(TypedDict, total=False):
    """How a model's calls are made."""

    call_timeout_s: float
    """Total deadline of one call, from its first byte out to its last event in."""
    stopping: Stopping | None
    """Asked several times a second during a call, which ends with Interrupted once it is due; None: never."""
    max_reply_bytes: int
    """Bytes of text, thinking and tool arguments; a longer reply is cut there."""
    cache_marks: bool
    """False: ``cache_control`` is left out, for servers that refuse it."""
    sees: Collection[str]
    """Kinds of media that the model is shown; a line stands for others."""


class HttpModel:
    """A Model behind HTTP."""

    def __init__(
        self,
        server: ModelServer,
        *,
        model: str,
        call_timeout_s: float = CALL_TIMEOUT_S,
        stopping: Stopping | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        cache_marks: bool = True,
        sees: Collection[str] = MEDIA,
    ) -> None:
        """Nothing is imported or connected before the first reply.

        Args:
            model: as the provider names it.
            call_timeout_s, stopping, max_reply_bytes, cache_marks, sees: as CallOptions says.
        """
        self._sees = sees
        self._cache_marks = cache_marks
        self._server = server
        self._max_reply_bytes = max_reply_bytes
        self._model = model
        self._call_timeout_s = call_timeout_s
        self._stopping = stopping

    @property
    def name(self) -> str:
        """The model that is asked."""
        return self._server.named(self._model)

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """A request that the provider refuses is asked once more without what that names."""
        yield from from_tool_events(self._reply(self._server.formed(request, self._model)), request)

    def _reply(self, request: Request) -> Iterator[ReplyEvent]:
        import_module(self._server.sdk)  # a process' first import takes a second or more, which is not the server's
        deadline = time.monotonic() + self._call_timeout_s
        messages = tuple(without_media(each, sees=self._sees) for each in request.messages)
        plain = replace(request, messages=messages, cache_marks=request.cache_marks and self._cache_marks)
        form: Request | None = without_thinking(plain, _refused)
        dropped: Collection[str] = ()
        while form is not None:
            asked, form, has_begun = form, None, False
            try:
                for event in _noting(dropped, self._ask(asked, deadline)):
                    has_begun = True
                    yield event
            except LoomError as error:
                form = None if has_begun else _other_form(asked, error)
                if form is None:
                    raise
                log.warning("the request is sent again without what was refused: %s", error)
                dropped = proofs(request) - proofs(form)

    def _ask(self, request: Request, deadline: float) -> Iterator[ReplyEvent]:
        body = self._server.body(request, self._model)
        call = _Sending(self._server, body, request, timeout_s=self._call_timeout_s, stopping=self._stopping)
        request.watch.asked(self.name)
        watched = WatchedBody(call, deadline=deadline, watch=request.watch)
        try:
            yield from self._read(watched, body, request.watch)
        except self._server.failures() as error:
            raise self._translated(error) from error
        finally:
            watched.close()

    def _read(self, watched: WatchedBody, body: Json, watch: Watch) -> Iterator[ReplyEvent]:
        assembly = self._assembly(body)
        try:
            for event in self._server.events(watched, max_bytes=2 * self._max_reply_bytes + EVENT_SLACK_BYTES):
                if assembly.begins_anew(event):
                    assembly = self._assembly(body)
                    yield Restarted("the server began its reply anew")
                deltas = assembly.feed(event)
                if assembly.has_usage_news:
                    watch.told(assembly.usage)
                    assembly.has_usage_news = False
                yield from deltas
                if assembly.is_complete or assembly.is_too_large:
                    break
        except TooLong:  # a stream that is longer than any reply, or one event that is: what came before it counts
            assembly.is_too_large = True
        reply = self._server.finished(assembly.reply(), body)
        if not assembly.is_too_large:
            watched.finish_by(time.monotonic() + DRAIN_S)
        yield reply

    def _assembly(self, body: Json) -> Assembly:
        return self._server.assembly(self._model, body, max_bytes=self._max_reply_bytes)

    def _translated(self, error: Exception) -> LoomError:
        import httpx2

        cause = error.__cause__ or error
        if isinstance(cause, Interrupted):
            return cause
        if own := self._server.translated(error, self._model):
            return own
        # The client waits as long for a byte as a call may take, so on a slow machine it may be the first to give up.
        if isinstance(error, TooLate) or isinstance(cause, httpx2.ReadTimeout):
            limit = f"{self._call_timeout_s:g} s (LOOM_LLM_TIMEOUT_S)"
            return StreamBroken(f"The model's reply was not complete after {limit}.")
        if (told := error_response(error)) is not None:
            server = self._server
            return translated(told, model=self._model, now_s=time.time(), secret=server.secret, advice=server.advice)
        if isinstance(cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
            return ProviderFailed(self._server.bad_address)
        is_sent = not isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)
        return (StreamBroken if is_sent else Unreached)(f"{self._server.unreachable} ({type(cause).__name__}).")


def error_response(error: BaseException | None) -> ErrorResponse | None:
    """The server's error; None if it was not the server that failed."""
    if isinstance(error, ErrorEvent):
        return read_error(200, error.args[0])
    # Both SDKs' errors of a status have these; which of them is installed and loaded does not matter here.
    status, response = getattr(error, "status_code", None), getattr(error, "response", None)
    if isinstance(status, int) and response is not None:
        return read_error(status, getattr(error, "body", None), response.headers)
    return None


def _other_form(asked: Request, error: LoomError) -> Request | None:
    """The request without what the server refused in it; None if it refused nothing that can be left out."""
    told = None if isinstance(error, PromptTooLong) else error_response(error.__cause__)
    refused = is_refusal(told) if told else False
    if told is None or refused is False:
        return None
    return without_what_is_refused(asked, told.message, is_certain=refused is True)


def _noting(dropped: Collection[str], events: Iterator[ReplyEvent]) -> Iterator[ReplyEvent]:
    """The events of a reply; the first one tells that thinking with these signatures, now dropped, was refused.

    Later requests of its session leave it out at once.
    """
    first = next(events)
    _refused.update(dict.fromkeys(dropped))
    while len(_refused) > MOST_REFUSED:
        _refused.pop(next(iter(_refused)), None)
    yield first
    yield from events


class _Sending:
    def __init__(
        self, server: ModelServer, body: Json, request: Request, *, timeout_s: float, stopping: Stopping | None
    ) -> None:
        self._server = server
        self._body = body
        self._request = request
        self._timeout_s = timeout_s
        self._stopping = stopping

    def open(self) -> Response:
        import httpx2

        _sending.may_be_sent = self._request.may_be_sent  # for the client's hook, which runs in this thread
        timeout = httpx2.Timeout(self._timeout_s, connect=min(CONNECT_S, self._timeout_s))
        # post() rather than messages.create(): the body is built here, and deprecated model names do not warn.
        try:
            stream: Any = self._server.client().post(
                self._server.path(self._body),
                **({"body": self._body} if self._server.reads_body else {"content": _encoded(self._body)}),
                cast_to=object,
                options={"timeout": timeout, "headers": PLAIN},
                stream=True,
                stream_cls=import_module(self._server.sdk).Stream[object],
            )
        except (TypeError, ValueError, RecursionError) as error:  # checked only now: to write it twice takes time
            if (why := json_error(self._body)) is None:
                raise
            raise NotSent(f"The request cannot be written as JSON, so it was not sent: {why[:100]}") from error
        crash_points.reached("llm.sent")
        return Response(stream)

    def is_given_up(self) -> bool:
        return (self._stopping is not None and self._stopping.is_due) or self._request.is_given_up()


def _encoded(body: Json) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
