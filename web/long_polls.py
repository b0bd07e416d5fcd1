"""Requests that wait for the end of a turn or a run: they hold a slot, but no thread."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from flask import Response, request

from loom_worker.core import log_context
from loom_worker.core.errors import NotFound, Transient
from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import Tenant
from web.answers import encode, json_answer
from web.bodies import preferred_wait_s
from web.caller import caller
from web.connection_limits import ConnectionLimiter
from web.continuations import HttpTask, coroutine_of
from web.detached import FinalAnswer, can_detach, detach
from web.problems import MEDIA_TYPE, RETRY_S, body_of, problem_of

if TYPE_CHECKING:
    from loom_worker.service.end_waits import EndWait
    from loom_worker.service.waiter import Awaited, Waiter

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
        problem = problem_of(error)
        body = body_of(problem, path=path, request_id=request_id).encode()
        return FinalAnswer(problem.status, {"Content-Type": MEDIA_TYPE, **problem.headers}, body)

    def headers(self, awaited: "Awaited", *, has_waited: bool) -> tuple[int, Mapping[str, str]]:
        """Status and headers.

        Args:
            has_waited: False where there was no slot to wait in, or nobody wished to.
        """
        if self.accepted is None:
            return 200, {}
        headers = {**self.accepted, **({"Preference-Applied": f"wait={self.wait_s}"} if has_waited else {})}
        return (200, headers) if awaited.is_finished else (202, {**headers, "Retry-After": str(RETRY_S)})


class LongPolls(Generic[A]):
    """Answers with a turn or run once it has ended, asks for a person, or the time is up."""

    def __init__(self, waiter: "Waiter[A]", limiter: ConnectionLimiter) -> None:
        self._waiter = waiter
        self._limiter = limiter

    def of(self, awaited_id: str, how: EndAnswer) -> Response:
        """The answer to a request for one.

        Raises:
            NotFound: the caller has none of that id.
        """
        if not how.wait_s or not can_detach():
            return self.of_known(self._waiter.with_wait(self._waiter.look(caller().tenant, awaited_id)), how)
        wait = self._waiter.expect(awaited_id)
        try:
            awaited = self._waiter.look(caller().tenant, awaited_id)
        except BaseException:
            wait.close()
            raise
        return self._answer(awaited, how, wait)

    def of_known(self, awaited: A, how: EndAnswer, *, since_s: float | None = None) -> Response:
        """The answer to a request whose answer is known.

        Args:
            since_s: by ``time.monotonic``, a moment before it was as it is known.
        """
        if awaited.is_finished or not how.wait_s:
            status, headers = how.headers(awaited, has_waited=True)
            return json_answer(how.body(awaited), status, headers)
        if can_detach():
            return self._answer(awaited, how, self._waiter.expect(awaited.id, since_s=since_s))
        return self._in_this_thread(awaited, how)

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

    def _answer(self, awaited: A, how: EndAnswer, wait: "EndWait") -> Response:
        must_wait = how.is_open(awaited)
        holders = caller().holders
        has_slot = must_wait and self._limiter.enter(*holders)
        if not has_slot:
            wait.close()
            status, headers = how.headers(awaited, has_waited=not must_wait)
            return json_answer(how.body(self._waiter.with_wait(awaited)), status, headers)
        detach(coroutine_of(_LongPoll(self._waiter, self._limiter, wait, awaited, how)), holds_answer=True)
        return Response(content_type="application/json")

    def _in_this_thread(self, awaited: A, how: EndAnswer) -> Response:
        """For servers that let no request leave its thread."""
        with self._limiter.slot(*caller().holders) as has_slot:
            # What was accepted stays accepted: an error now would make the client submit it again.
            with suppress(Transient):
                if has_slot:
                    is_stopping = self._limiter.leaving()
                    awaited = self._waiter.wait(
                        caller().tenant, awaited.id, timeout_s=float(how.wait_s), is_stopping=is_stopping
                    )
            status, headers = how.headers(awaited, has_waited=has_slot)
            return json_answer(how.body(awaited), status, headers)


class _LongPoll(Generic[A]):
    """A request that waits without a thread."""

    holds_answer = True

    def __init__(
        self, waiter: "Waiter[A]", limiter: ConnectionLimiter, wait: "EndWait", awaited: A, how: EndAnswer
    ) -> None:
        self._waiter = waiter
        self._limiter = limiter
        self._wait = wait
        self._awaited = awaited
        self._how = how
        self._until_s = time.monotonic() + how.wait_s
        self._tenant: Tenant = caller().tenant
        self._holders = caller().holders
        self._path, self._request_id = request.path, caller().request_id
        self._ids = log_context.ids()
        self._task: HttpTask | None = None
        self._has_left = False

    def begin(self, task: HttpTask) -> None:
        self._task = task
        self._wait.begin(self, until_s=self._until_s)

    def over(self) -> None:
        if self._task is not None:
            self._task.end()

    def leave(self) -> None:
        self._has_left = True
        self._wait.stop()

    def resume(self) -> None:
        pass  # Nothing is sent before the end.

    def conclude(self) -> FinalAnswer | bool:
        self._wait.renew()
        with log_context.about(self._ids):
            try:
                self._awaited = self._waiter.look(self._tenant, self._awaited.id)
                if self._must_wait():
                    return False
                self._awaited = self._waiter.with_wait(self._awaited)
            except NotFound as error:
                return self._how.if_gone(error, path=self._path, request_id=self._request_id)
            except Transient:
                pass  # What was accepted stays accepted: an error now would make the client submit it again.
            status, headers = self._how.headers(self._awaited, has_waited=True)
            return FinalAnswer(status, headers, encode(self._how.body(self._awaited)))

    def close(self) -> None:
        self._wait.close()
        self._limiter.leave(*self._holders)

    def _must_wait(self) -> bool:
        is_over = self._has_left or self._limiter.is_draining or time.monotonic() >= self._until_s
        return self._how.is_open(self._awaited) and not is_over
