"""The calls of an agent elsewhere over HTTP, to addresses that were checked, under a deadline."""

import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from loom_worker.core import crash_points
from loom_worker.core.errors import Interrupted, Invalid, LoomError, Overloaded, ProviderFailed, StreamBroken, Transient
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import Request
from loom_worker.core.values.json import Json
from loom_worker.guard.net.address import Lookup, Target, target
from loom_worker.guard.net.dial import Deadline, resolve_in_time
from loom_worker.guard.net.http import HttpRequest, retry_after_s
from loom_worker.guard.net.stream import OpenAnswer, open_request
from loom_worker.llm.response import TooLate, TooLong, WatchedBody
from loom_worker.llm.sse import events

_ADVICE = {
    401: "It does not accept our credentials: check a2a.auth in the agent's file, and its secret.",
    403: "Our credentials have no permission for this: check a2a.auth in the agent's file.",
    404: "There is no agent at this address: check a2a.url in the agent's file.",
}


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """Where an agent is, and how it is called."""

    url: str
    """Of the agent, below which its card is, or of the card."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with each call, the secret among them."""
    allow_private: bool = False
    timeout_s: float = 120.0
    """Of one reply, all of it."""
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
        """The JSON objects of an answer that streams; one that is an object itself is the only one.

        Raises:
            LoomError: as Model.reply.
        """
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
