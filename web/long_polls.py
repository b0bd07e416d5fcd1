"""Requests that wait for the end of a turn or a run: they hold a slot, but no thread."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from flask import Response, request

from loom_worker.core import log_context
from loom_worker.core.errors import NotFound, Transient
from loom_worker.core.values.json import Json
from web.answers import encode, json_answer
from web.auth import ENDED_KEY
from web.bodies import preferred_wait_s
from web.caller import ApiCaller, caller
from web.connection_limits import ConnectionLimiter
from web.detached import Exchange, FinalAnswer, can_detach, detach
from web.problems import MEDIA_TYPE, RETRY_S, ProblemDetails, body_of, problem_of

if TYPE_CHECKING:
    from loom_worker.service.keys import Keys
    from loom_worker.service.waiting.sources import Awaited
    from loom_worker.service.waiting.waiter import Waiter

A = TypeVar("A", bound="Awaited")


@dataclass(frozen=True, slots=True)
class EndAnswer:
    """How a turn or run is answered that was waited for."""

    wait_s: int
    """How long, at most; 0: not at all."""
    accepted: Mapping[str, str] | None = None
    """Headers of the answer to a submit: 200 once the turn has ended, 202 before."""

    def is_open(self, awaited: "Awaited") -> bool:
        """True while it is worth waiting for."""
        return not awaited.is_finished and awaited.status != "requires_action"

    def body(self, awaited: "Awaited") -> Json:
        """What is answered."""
        return awaited.as_json()

    def if_gone(self, error: NotFound, *, path: str, request_id: str) -> FinalAnswer:
        """What is answered if it is deleted meanwhile."""
        return _refused(problem_of(error), path, request_id)

    def headers(self, awaited: "Awaited", *, has_waited: bool) -> tuple[int, Mapping[str, str]]:
        """Status and headers.

        Args:
            has_waited: False where it could not be waited for, as there was no slot.
        """
        if self.accepted is None:
            return 200, {}
        headers = {**self.accepted, **({"Preference-Applied": f"wait={self.wait_s}"} if has_waited else {})}
        return (200, headers) if awaited.is_finished else (202, {**headers, "Retry-After": str(RETRY_S)})


class LongPolls(Generic[A]):
    """Answers with a turn or run once it has ended, asks for a person, or the time is up."""

    def __init__(self, waiter: "Waiter[A]", keys: "Keys", limiter: ConnectionLimiter) -> None:
        self._waiter = waiter
        self._keys = keys
        self._limiter = limiter

    def of(self, awaited_id: str, how: EndAnswer) -> Response:
        """The answer to a request for one.

        Raises:
            NotFound: the caller has none of that id.
        """
        since_s = time.monotonic()
        return self.of_known(self._waiter.source.look(caller().tenant, awaited_id), how, since_s=since_s)

    def of_known(self, awaited: A, how: EndAnswer, *, since_s: float) -> Response:
        """The answer to a request whose answer is known; at once where no request can leave its thread.

        Args:
            since_s: by ``time.monotonic``, a moment before it was as it is known.
        """
        must_wait = how.wait_s > 0 and how.is_open(awaited)
        if must_wait and can_detach() and self._limiter.enter(*caller().holders):
            poll = _LongPoll(self._waiter, self._keys, self._limiter, awaited, how, since_s)
            detach(poll.go_on, holds_answer=True)
            return Response(content_type="application/json")
        status, headers = how.headers(awaited, has_waited=not must_wait)
        return json_answer(how.body(self._waiter.texts.with_wait(awaited)), status, headers)

    def of_accepted(self, awaited: A, location: str, *, is_replay: bool, asked_s: float, most_s: int) -> Response:
        """The answer to a submit: 202, or 200 for a client that preferred to wait and saw the end.

        Args:
            asked_s: when the service was asked, by ``time.monotonic``: it may have ended since.
            most_s: seconds that a client may wait.
        """
        preferred_s = preferred_wait_s(request.headers)
        headers = {"Location": location, **({"Idempotency-Replayed": "true"} if is_replay else {})}
        if preferred_s is None:
            return json_answer(awaited.as_json(), 202, {**headers, "Retry-After": str(RETRY_S)})
        return self.of_known(awaited, EndAnswer(min(preferred_s, most_s), headers), since_s=asked_s)


def _refused(problem: ProblemDetails, path: str, request_id: str) -> FinalAnswer:
    body = body_of(problem, path=path, request_id=request_id).encode()
    return FinalAnswer(problem.status, {"Content-Type": MEDIA_TYPE, **problem.headers}, body)


@dataclass(slots=True)
class _LongPoll(Generic[A]):
    """A request that waits without a thread; it has a slot."""

    waiter: "Waiter[A]"
    keys: "Keys"
    limiter: ConnectionLimiter
    awaited: A
    how: EndAnswer
    since_s: float
    asking: ApiCaller = field(default_factory=caller)
    path: str = field(default_factory=lambda: request.path)
    ids: log_context.Ids = field(default_factory=log_context.ids)

    async def go_on(self, exchange: Exchange) -> FinalAnswer:
        until_s = time.monotonic() + self.how.wait_s
        try:
            while True:
                ended = self.waiter.ended(self.awaited.id, since_s=self.since_s, until_s=until_s)
                has_left = not await exchange.until_left(ended)
                is_over = has_left or self.waiter.is_draining or time.monotonic() >= until_s
                self.since_s = time.monotonic()
                answer = await exchange.in_thread(partial(self._answer, is_over=is_over))
                if answer is not None:
                    return answer
        finally:
            self.limiter.leave(*self.asking.holders)

    def _answer(self, *, is_over: bool) -> FinalAnswer | None:
        """The answer; None if it must still be waited for."""
        with log_context.about(self.ids):
            try:
                self.awaited = self.waiter.source.look(self.asking.tenant, self.awaited.id)
                if self.how.is_open(self.awaited) and not is_over:
                    return None
                if self.keys.has_ended(self.asking.holder):
                    return _refused(ENDED_KEY, self.path, self.asking.request_id)
                self.awaited = self.waiter.texts.with_wait(self.awaited)
            except NotFound as error:
                return self.how.if_gone(error, path=self.path, request_id=self.asking.request_id)
            except Transient:
                pass  # What was accepted stays accepted: an error now would make the client submit it again.
            status, headers = self.how.headers(self.awaited, has_waited=True)
            return FinalAnswer(status, headers, encode(self.how.body(self.awaited)))
